//! Runs of tasks with a guard: planned first, and applied by the plan's id.

use super::run::{End, Run};
use crate::{
    ApplyRequest, Change, Error, InputsDigest, Outcome, Plan, PlanId, PlanPurpose, Result,
    RunContext, Stop, TaskInputs, Waiting, WorkStep,
};

/// Limit of plans for one run: a plan that was out of date before it could be
/// applied is made again.
const PLANS: usize = 3;

/// The longest text of a plan that is kept while it waits, in bytes. A store
/// may bound what it takes, Consul's KV to 512 KiB.
const TEXT: usize = 64 * 1024;

impl Run {
    /// The plan of this task that waits for approval.
    pub(super) fn waiting_plan(&self) -> Option<Plan> {
        self.shared.cached_store.read(|state| state.plans.get(&self.task.name).cloned())
    }

    /// Returns `true` if a plan waits that would do just what these inputs call
    /// for. Any other plan that waits is discarded.
    pub(super) async fn still_waits(&self, inputs: &InputsDigest, context: &RunContext) -> bool {
        let Some(plan) = self.waiting_plan() else { return false };
        let current = plan.waiting.as_ref().is_some_and(|waiting| waiting.inputs == *inputs);
        if self.task.guard.is_set() && current && self.holds(&plan.id, context).await {
            tracing::info!(task.name = %self.task.name, plan.id = %plan.id, "the plan waits on for approval");
            return true;
        }
        tracing::info!(task.name = %self.task.name, plan.id = %plan.id, "the plan that waited is out of date");
        discard(self, &plan.id, context).await;
        false
    }

    /// Takes the plan that waits away, as somebody decided. The next run plans again.
    ///
    /// # Errors
    ///
    /// The store's, or a stop.
    pub(super) async fn discard(
        self,
        plan: &PlanId,
        context: &RunContext,
        stop: &Stop,
    ) -> Result<()> {
        discard(&self, plan, context).await;
        self.view().mark_dirty();
        self.shared
            .cached_store
            .commit(&[Change::DeletePlan(self.task.name.clone())], stop)
            .await?;
        tracing::info!(task.name = %self.task.name, plan.id = %plan, "the plan was discarded");
        Ok(())
    }

    pub(super) async fn holds(&self, plan: &PlanId, context: &RunContext) -> bool {
        self.driver.holds(plan, context).await.unwrap_or_else(|error| {
            tracing::warn!(
                task.name = %self.task.name,
                plan.id = %plan,
                error = &error as &dyn std::error::Error,
                "cannot tell whether the plan can still be applied, so it is made again"
            );
            false
        })
    }

    /// Plans, and applies that plan if the guard does not object.
    pub(super) async fn plan_first(
        &self,
        inputs: &TaskInputs,
        digest: InputsDigest,
        context: &RunContext,
    ) -> Result<End> {
        for _ in 0..PLANS {
            // Planning already takes the place of what waits elsewhere.
            let number = self.pending_approvals.begin();
            self.shared.work.step(&self.task.name, WorkStep::Plan);
            let mut plan = self.driver.plan(inputs, PlanPurpose::Apply, context).await?;
            if plan.changes.is_empty() {
                discard(self, &plan.id, context).await;
                return Ok(End::Applied(Outcome::Unchanged, digest));
            }
            if let Some(objection) = self.task.guard.objection(&plan.changes) {
                shorten(&mut plan.text);
                plan.waiting = Some(Waiting::new(objection, digest));
                return Ok(End::Waits(Box::new(plan)));
            }
            self.shared.work.step(&self.task.name, WorkStep::Apply);
            let outcome = self.driver.apply(ApplyRequest::Plan(&plan.id), context).await?;
            if let Some(end) = self.end(number, outcome, digest.clone()) {
                return Ok(end);
            }
        }
        Err(Error::Driver {
            message: format!("{PLANS} plans in a row were out of date before they were applied"),
            retryable: true,
            source: None,
        })
    }

    /// Applies the plan that was approved, unless newer inputs are there.
    pub(super) async fn apply_approved(&self, id: &PlanId, context: &RunContext) -> Result<End> {
        let (_, digest) = self.take_inputs();
        let plan = self.waiting_plan().filter(|plan| plan.id == *id);
        let waiting = plan.and_then(|plan| plan.waiting);
        // Approved were the changes for those inputs, and not whatever there is by now.
        if waiting.is_none_or(|waiting| waiting.inputs != digest) {
            return Ok(End::OutOfDate);
        }
        let number = self.pending_approvals.begin();
        let outcome = self.driver.apply(ApplyRequest::Plan(id), context).await?;
        Ok(self.end(number, outcome, digest).unwrap_or(End::OutOfDate))
    }
}

/// Discards a plan. A failure is logged only: the leftovers of a plan that cannot
/// be discarded hinder nothing.
pub(super) async fn discard(run: &Run, plan: &PlanId, context: &RunContext) {
    if let Err(error) = run.driver.discard(plan, context).await {
        tracing::warn!(
            task.name = %run.task.name,
            plan.id = %plan,
            error = &error as &dyn std::error::Error,
            "cannot discard the plan"
        );
    }
}

/// Bounds the text that is kept.
fn shorten(text: &mut String) {
    let kept = text.floor_char_boundary(TEXT);
    let left_out = text.len() - kept;
    if left_out > 0 {
        text.truncate(kept);
        let note = format!("\n… ({left_out} more bytes)\n");
        text.push_str(&note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut text = "é".repeat(TEXT);
        shorten(&mut text);
        assert!(text.ends_with(&format!("é\n… ({TEXT} more bytes)\n")), "{}", text.len());
        let mut short = "plan".to_owned();
        shorten(&mut short);
        assert_eq!(short, "plan");
    }
}
