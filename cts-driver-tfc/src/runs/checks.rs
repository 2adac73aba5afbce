//! The outcomes of cost estimates, policies and run tasks, one line each.

use std::time::Duration;

use consul_watch::error_chain;
use tokio::time::timeout;

use super::Runs;
use crate::{
    Result,
    types::{
        CostEstimateAttributes, PolicyCheckAttributes, PolicyEvaluationAttributes, RunReport,
        TaskResultAttributes, TaskStage, TaskStageAttributes,
    },
};

/// Time for all requests about one run: they are for people, and not worth an outcome of the run
/// that comes late.
const READ: Duration = Duration::from_secs(30);

/// Characters that are shown of the text of a run task.
const SAID: usize = 200;

impl Runs<'_> {
    /// Reads the outcomes, reports them, and notes them for the event of the run.
    ///
    /// Nothing is asked for a run that has none.
    pub(crate) async fn checks(&self, report: &RunReport) -> Vec<String> {
        let mut lines = Vec::new();
        // Lines go into a list outside of the future, so that those read before a failure are kept.
        let reading = self.read_checks(report, &mut lines);
        let problem = tokio::select! {
            read = timeout(READ, reading) => match read {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error_chain(&error)),
                Err(_late) => Some(format!("no answer within {} s", READ.as_secs())),
            },
            // The run itself is dealt with by who waits for it.
            _reason = self.context.stop.stopped() => None,
        };
        if let Some(problem) = problem {
            tracing::warn!(task.name = %self.task.name, run.id = %report.run.id, error = problem, "cannot read all outcomes of policies, costs and run tasks");
            lines.push(format!(
                "further outcomes of policies, costs and run tasks cannot be read: {problem}"
            ));
        }
        for line in &lines {
            self.context.progress.report(line);
        }
        // Set also if empty: the notes of an earlier run would stay otherwise.
        self.context.notes.set(lines.clone());
        lines
    }

    async fn read_checks(&self, report: &RunReport, lines: &mut Vec<String>) -> Result<()> {
        // The relationships of the run say what there is, so that most runs need no request.
        let (id, related) = (&report.run.id, &report.run.relationships);
        if let Some(cost) = related.one::<CostEstimateAttributes>("cost-estimate") {
            lines.push(costs(&self.client.cost_estimate(&cost).await?.attributes));
        }
        if !related.many::<PolicyCheckAttributes>("policy-checks").is_empty() {
            let checks = self.client.policy_checks(id).await?;
            lines.extend(checks.iter().map(|check| policies(&check.attributes)));
        }
        if !related.many::<TaskStageAttributes>("task-stages").is_empty() {
            for stage in self.client.task_stages(id).await? {
                self.read_stage(&stage, lines).await?;
            }
        }
        Ok(())
    }

    async fn read_stage(&self, stage: &TaskStage, lines: &mut Vec<String>) -> Result<()> {
        let TaskStageAttributes { stage: name, status, .. } = &stage.attributes;
        if !stage.relationships.many::<PolicyEvaluationAttributes>("policy-evaluations").is_empty()
        {
            let found = self.client.policy_evaluations(&stage.id).await?;
            lines.extend(found.iter().map(|found| evaluated(&found.attributes, name)));
        }
        // Results come one by one; the platform has no list of them.
        for result in stage.relationships.many::<TaskResultAttributes>("task-results") {
            let result = self.client.task_result(&result).await?;
            lines.push(task_result(&result.attributes, name));
        }
        if status == "awaiting_override" {
            lines.push(format!(
                "stage {name}: awaiting_override: a person has to override the failures or \
                 discard the run"
            ));
        }
        Ok(())
    }
}

fn costs(found: &CostEstimateAttributes) -> String {
    if found.status != "finished" {
        let problem = plain(found.error_message.as_deref().unwrap_or_default());
        return format!("cost estimate: {} {problem}", found.status).trim_end().to_owned();
    }
    let amount = |amount: &Option<String>| amount.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "cost estimate: {} USD a month, a change of {}; {} of {} resources have a price",
        amount(&found.proposed_monthly_cost),
        amount(&found.delta_monthly_cost),
        found.matched_resources_count,
        found.resources_count,
    )
}

fn policies(found: &PolicyCheckAttributes) -> String {
    let mut line = format!("policy check ({}): {}", found.scope, found.status);
    if let Some(counts) = &found.result {
        line = format!(
            "{line}: {} passed, {} hard-mandatory, {} soft-mandatory and {} advisory failed",
            counts.passed, counts.hard_failed, counts.soft_failed, counts.advisory_failed
        );
    }
    if found.status == "soft_failed" {
        line.push_str("; a person may override it");
    }
    line
}

fn evaluated(found: &PolicyEvaluationAttributes, stage: &str) -> String {
    let mut line = format!("policy evaluation ({}, {stage}): {}", found.policy_kind, found.status);
    if let Some(counts) = &found.result_count {
        line = format!(
            "{line}: {} passed, {} mandatory and {} advisory failed, {} errored",
            counts.passed, counts.mandatory_failed, counts.advisory_failed, counts.errored
        );
    }
    line
}

fn task_result(found: &TaskResultAttributes, stage: &str) -> String {
    let level = &found.workspace_task_enforcement_level;
    let mut line = format!("run task {:?} ({stage}, {level}): {}", found.task_name, found.status);
    for said in [&found.message, &found.url].into_iter().flatten() {
        line = format!("{line}: {}", plain(said));
    }
    line
}

/// Returns one line of a text that somebody else wrote.
fn plain(text: &str) -> String {
    // A line break could forge a line of the log.
    let characters = text.chars().map(|one| if one.is_control() { ' ' } else { one });
    characters.take(SAID).collect::<String>().trim().to_owned()
}
