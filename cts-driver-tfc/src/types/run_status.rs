use std::fmt;

use serde::Deserialize;

/// How far a run is, in the platform's words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum RunStatus {
    /// It waits behind earlier runs, or for a lock.
    Pending,
    /// It waits for a worker to plan.
    PlanQueued,
    /// It is being planned.
    Planning,
    /// It was planned; perhaps it waits for confirmation.
    Planned,
    /// Its costs are known; perhaps it waits for confirmation.
    CostEstimated,
    /// Its policies were checked; perhaps it waits for confirmation.
    PolicyChecked,
    /// A policy failed that a person may override.
    PolicyOverride,
    /// A task after the plan waits for a person.
    PostPlanAwaitingDecision,
    /// Its plan is kept; only a person applies it.
    PlannedAndSaved,
    /// It was confirmed, or needs no confirmation.
    Confirmed,
    /// It waits for a worker to apply.
    ApplyQueued,
    /// It is being applied.
    Applying,
    /// It was applied.
    Applied,
    /// It was planned, and there is nothing to apply.
    PlannedAndFinished,
    /// It was only planned, and a policy failed that could be overridden.
    PolicySoftFailed,
    /// Somebody discarded it.
    Discarded,
    /// Somebody ended it.
    Canceled,
    /// Somebody ended it without waiting.
    ForceCanceled,
    /// It failed.
    Errored,
    /// One of those that need nothing but patience, or that are not known.
    Other(String),
}

/// Each status with the platform's word for it.
const WORDS: [(&str, RunStatus); 20] = [
    ("pending", RunStatus::Pending),
    ("plan_queued", RunStatus::PlanQueued),
    ("planning", RunStatus::Planning),
    ("planned", RunStatus::Planned),
    ("cost_estimated", RunStatus::CostEstimated),
    ("policy_checked", RunStatus::PolicyChecked),
    ("policy_override", RunStatus::PolicyOverride),
    ("post_plan_awaiting_decision", RunStatus::PostPlanAwaitingDecision),
    ("planned_and_saved", RunStatus::PlannedAndSaved),
    ("confirmed", RunStatus::Confirmed),
    ("queuing_apply", RunStatus::ApplyQueued),
    ("apply_queued", RunStatus::ApplyQueued),
    ("applying", RunStatus::Applying),
    ("applied", RunStatus::Applied),
    ("planned_and_finished", RunStatus::PlannedAndFinished),
    ("policy_soft_failed", RunStatus::PolicySoftFailed),
    ("discarded", RunStatus::Discarded),
    ("canceled", RunStatus::Canceled),
    ("force_canceled", RunStatus::ForceCanceled),
    ("errored", RunStatus::Errored),
];

/// Statuses besides those of [`RunStatus`] that are known to come after the
/// run was confirmed, so that ending it could end an apply.
const APPLYING: [&str; 4] =
    ["pre_apply_running", "pre_apply_completed", "post_apply_running", "post_apply_completed"];

impl From<String> for RunStatus {
    fn from(text: String) -> Self {
        let known = WORDS.iter().find(|(word, _)| *word == text);
        known.map_or(Self::Other(text), |(_, status)| status.clone())
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Other(text) = self {
            return f.write_str(text);
        }
        let words = WORDS.iter().rev().find(|(_, status)| status == self);
        f.write_str(words.map_or("unknown", |(word, _)| word))
    }
}

/// What a status means to whoever waits for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It waits for its turn, perhaps for long.
    Queued,
    /// It goes on by itself towards a plan.
    Planning,
    /// It goes on by itself, and changes infrastructure.
    Applying,
    /// It waits for a person.
    Waiting,
    /// It ended well, and infrastructure was changed.
    Applied,
    /// It ended well, and nothing was changed.
    Finished,
    /// It was only planned, and a policy failed that could be overridden.
    SoftFailed,
    /// It ended, and not well.
    Failed,
}

impl Phase {
    /// Whether the run goes no further.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Applied | Self::Finished | Self::SoftFailed | Self::Failed)
    }
}

impl RunStatus {
    /// What the status means; `confirmable` is the run's own word that it
    /// waits for confirmation.
    ///
    /// A status that is not known counts as one on the way.
    ///
    /// Source: HCP Terraform documentation, run states.
    pub fn phase(&self, confirmable: bool) -> Phase {
        match self {
            Self::Pending => Phase::Queued,
            Self::Planned | Self::CostEstimated | Self::PolicyChecked if confirmable => {
                Phase::Waiting
            }
            Self::PolicyOverride | Self::PostPlanAwaitingDecision | Self::PlannedAndSaved => {
                Phase::Waiting
            }
            Self::Confirmed | Self::ApplyQueued | Self::Applying => Phase::Applying,
            Self::Applied => Phase::Applied,
            Self::PlannedAndFinished => Phase::Finished,
            Self::PolicySoftFailed => Phase::SoftFailed,
            Self::Discarded | Self::Canceled | Self::ForceCanceled | Self::Errored => Phase::Failed,
            Self::Other(word) if APPLYING.contains(&word.as_str()) => Phase::Applying,
            Self::PlanQueued
            | Self::Planning
            | Self::Planned
            | Self::CostEstimated
            | Self::PolicyChecked
            | Self::Other(_) => Phase::Planning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(word: &str) -> RunStatus {
        RunStatus::from(word.to_owned())
    }

    #[test]
    fn every_word_of_the_platform_has_its_phase() {
        for (word, phase) in [
            ("pending", Phase::Queued),
            ("fetching", Phase::Planning),
            ("fetching_completed", Phase::Planning),
            ("pre_plan_running", Phase::Planning),
            ("pre_plan_completed", Phase::Planning),
            ("queuing", Phase::Planning),
            ("plan_queued", Phase::Planning),
            ("planning", Phase::Planning),
            ("planned", Phase::Planning),
            ("post_plan_running", Phase::Planning),
            ("post_plan_completed", Phase::Planning),
            ("post_plan_awaiting_decision", Phase::Waiting),
            ("cost_estimating", Phase::Planning),
            ("policy_checking", Phase::Planning),
            ("policy_override", Phase::Waiting),
            ("planned_and_saved", Phase::Waiting),
            ("confirmed", Phase::Applying),
            ("queuing_apply", Phase::Applying),
            ("pre_apply_running", Phase::Applying),
            ("apply_queued", Phase::Applying),
            ("applying", Phase::Applying),
            ("post_apply_running", Phase::Applying),
            ("applied", Phase::Applied),
            ("planned_and_finished", Phase::Finished),
            ("policy_soft_failed", Phase::SoftFailed),
            ("discarded", Phase::Failed),
            ("canceled", Phase::Failed),
            ("force_canceled", Phase::Failed),
            ("errored", Phase::Failed),
            ("something_new", Phase::Planning),
        ] {
            assert_eq!(status(word).phase(false), phase, "{word}");
        }
        for word in ["planned", "cost_estimated", "policy_checked"] {
            assert_eq!(status(word).phase(true), Phase::Waiting, "{word}");
        }
    }

    #[test]
    fn statuses_are_shown_in_the_platforms_words() {
        for word in ["pending", "apply_queued", "force_canceled", "something_new"] {
            assert_eq!(status(word).to_string(), word);
        }
    }
}
