//! The report on a run that ended: the error with the lines of its log, and the counts of what it
//! changed.

use cts_tasks::{Changes, Plan as TaskPlan, PlanId};

use super::Runs;
use crate::{
    Error, log,
    types::{Phase, Plan, RunReport, RunStatus, StepStatus},
};

impl Runs<'_> {
    /// Returns the error of a run that did not end well, with the errors of its logs.
    ///
    /// `checks` are the outcomes of policies and run tasks, of which one may have ended it.
    pub(crate) async fn failure(&self, report: &RunReport, checks: &[String]) -> Error {
        let status = &report.run.attributes.status;
        // Only one that errored has something in its logs; others were ended by a decision.
        let errored = *status == RunStatus::Errored;
        let details = if errored { self.errors(report, checks).await } else { String::new() };
        Error::Run {
            workspace: self.name.to_owned(),
            run: report.run.id.to_string(),
            status: status.to_string(),
            url: self.url(&report.run.id),
            details: if details.is_empty() { details } else { format!("\n{details}") },
            // Decided by the setting `retry_errored`, which queues another run itself.
            retryable: false,
        }
    }

    /// Returns the errors in the log of the step that failed.
    async fn errors(&self, report: &RunReport, checks: &[String]) -> String {
        let apply = report.apply.as_ref().map(|apply| &apply.attributes);
        let plan = report.plan.as_ref().map(|plan| &plan.attributes);
        // Apply first: it runs last, and its failure is the one that counts.
        let (step, address) = match (apply, plan) {
            (Some(apply), _) if apply.status == StepStatus::Errored => {
                ("apply", &apply.log_read_url)
            }
            (_, Some(plan)) if plan.status == StepStatus::Errored => ("plan", &plan.log_read_url),
            _ if !checks.is_empty() => return checks.join("\n"),
            _ => {
                return "neither plan nor apply failed; a policy or a run task may have".to_owned();
            }
        };
        let Some(address) = address else { return format!("{step} failed") };
        match log::read(&self.client, address).await {
            // Values of sensitive variables can stand in an error of a provider.
            Ok(log) => self.mask.hide(&format!("{step} failed: {}", log.errors())),
            Err(error) => {
                format!(
                    "{step} failed, and its log cannot be read: {}",
                    consul_watch::error_chain(&error)
                )
            }
        }
    }

    /// Returns the changes that a run would make, for people and for guards.
    pub(crate) async fn plan(&self, report: &RunReport) -> Result<TaskPlan, Error> {
        let mut text = String::new();
        if let Some(address) =
            report.plan.as_ref().and_then(|plan| plan.attributes.log_read_url.as_ref())
        {
            text = self.mask.hide(&log::read(&self.client, address).await?.readable());
        }
        let id = PlanId::new(report.run.id.as_str());
        let changes = report.plan.as_ref().map(planned).unwrap_or_default();
        let mut plan = TaskPlan::new(id, changes, text);
        plan.url = Some(self.url(&report.run.id));
        // Another process can confirm the run by its id.
        plan.portable = true;
        Ok(plan)
    }
}

/// Returns the counts of a plan.
pub(crate) fn planned(plan: &Plan) -> Changes {
    let attributes = &plan.attributes;
    counted(
        [
            attributes.resource_additions,
            attributes.resource_changes,
            attributes.resource_destructions,
        ],
        attributes.has_changes == Some(true),
    )
}

/// Returns the counts of a run that was applied.
pub(crate) fn applied(report: &RunReport) -> Changes {
    let done = report.run.attributes.phase() == Phase::Applied;
    match &report.apply {
        Some(apply) if apply.attributes.resource_additions.is_some() => {
            let apply = &apply.attributes;
            let counts =
                [apply.resource_additions, apply.resource_changes, apply.resource_destructions];
            counted(counts, done)
        }
        // Without counts of the apply, those of the plan, which it was to carry out.
        _ => report.plan.as_ref().map(planned).unwrap_or_default(),
    }
}

fn counted([add, change, destroy]: [Option<u64>; 3], any: bool) -> Changes {
    let mut changes = Changes::default();
    changes.add = add.unwrap_or_default();
    changes.change = change.unwrap_or_default();
    changes.destroy = destroy.unwrap_or_default();
    // Something changes, and it is no resource.
    changes.outputs_only = any && changes.is_empty();
    changes
}
