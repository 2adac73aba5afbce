//! The check for drift of one task.

use consul_watch::error_chain;

use super::run::Run;
use crate::{Change, DriftCheck, Error, PlanPurpose, Result, RunContext, Stop};

/// Looks for differences between what was last applied and what is really
/// there, and notes what it found. Nothing is repaired.
///
/// # Errors
///
/// The store's, a stop, or a permit that is gone; what the driver fails with
/// is noted.
pub(super) async fn check_drift(run: Run, stop: &Stop) -> Result<()> {
    // A look plans, and so counts among the tasks that run at once.
    let _turn = run.turn(stop).await?;
    let name = &run.task.name;
    let inputs = run.view().inputs().map(|(inputs, _digest)| inputs).unwrap_or_default();
    let (driver, inputs) = (&run.driver, &inputs);
    let plan = |context: RunContext| async move {
        driver.plan(inputs, PlanPurpose::Drift, &context).await
    };
    let planned = run.shared.within_timeout(&run.task, &run.context(stop), plan).await;
    let check = DriftCheck::new(match planned {
        Ok(plan) => Ok(plan.changes),
        Err(error @ (Error::Stopped { .. } | Error::NotPermitted { .. })) => return Err(error),
        Err(error) => Err(error_chain(&error)),
    });
    match &check.error {
        Some(error) => tracing::warn!(task.name = %name, error, "cannot check for drift"),
        None if check.has_drifted() => {
            let changes = check.changes.clone().unwrap_or_default();
            tracing::warn!(
                task.name = %name,
                add = changes.add,
                change = changes.change,
                destroy = changes.destroy,
                "infrastructure is not as it was applied"
            );
        }
        None => tracing::debug!(task.name = %name, "no drift"),
    }
    run.shared.cached_store.commit(&[Change::SetDrift(name.clone(), Box::new(check))], stop).await
}
