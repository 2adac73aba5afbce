//! Enabling and disabling of one task.

use super::{command::FirstRun, guarded::discard, run::Run};
use crate::{Change, Result, RunContext, Stop};

/// Enables or disables one task.
pub(crate) struct Update {
    pub(crate) run: Run,
    pub(crate) context: RunContext,
    pub(crate) enabled: bool,
    pub(crate) first_run: FirstRun,
}

impl Update {
    /// Prepares the task's driver again if it was disabled, runs the task if
    /// that is asked for, and then stores the change; so if either fails, the
    /// task stays as it was.
    ///
    /// Source: Consul-Terraform-Sync 0.9, `driver/terraform.go` (`UpdateTask`).
    pub(crate) async fn finish(mut self, stop: &Stop) -> Result<()> {
        let was_enabled = std::mem::replace(&mut self.run.task.enabled, self.enabled);
        if self.enabled && !was_enabled {
            let driver = &self.run.driver;
            let prepare = |context: RunContext| async move { driver.prepare(&context).await };
            self.run.shared.within_timeout(&self.run.task, &self.context, prepare).await?;
        }
        let put = Change::PutTask(Box::new(self.run.task.clone()));
        if self.enabled && self.first_run == FirstRun::Now {
            self.run.also_commit = Some(put);
            return self.run.finish(stop).await;
        }
        if self.enabled == was_enabled {
            return Ok(());
        }
        let mut batch = vec![put];
        // Nobody shall apply a plan of a disabled task, nor of what it once was.
        if let Some(plan) = self.run.waiting_plan() {
            discard(&self.run, &plan.id, &self.context).await;
            self.run.view().mark_dirty();
            batch.push(Change::DeletePlan(self.run.task.name.clone()));
        }
        self.run.shared.cached_store.commit(&batch, stop).await
    }
}
