//! The many statuses of a run, and the few phases that they come down to.

use std::fmt;

use serde::Deserialize;

/// Progress of a run, in the platform's words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum RunStatus {
    /// The run waits behind earlier runs, or for a lock.
    Pending,
    /// The run waits for a worker to plan.
    PlanQueued,
    /// The run is being planned.
    Planning,
    /// The run was planned; perhaps it waits for confirmation.
    Planned,
    /// The costs are known; perhaps the run waits for confirmation.
    CostEstimated,
    /// The policies were checked; perhaps the run waits for confirmation.
    PolicyChecked,
    /// A policy failed that a person may override.
    PolicyOverride,
    /// A task after the plan waits for a person.
    PostPlanAwaitingDecision,
    /// The plan is kept; only a person applies it.
    PlannedAndSaved,
    /// The run was confirmed, or needs no confirmation.
    Confirmed,
    /// The run waits for a worker to apply.
    ApplyQueued,
    /// The run is being applied.
    Applying,
    /// The run was applied.
    Applied,
    /// The run was planned, and there is nothing to apply.
    PlannedAndFinished,
    /// The run was only planned, and a policy failed that could be overridden.
    PolicySoftFailed,
    /// Somebody discarded the run.
    Discarded,
    /// Somebody cancelled the run.
    Canceled,
    /// Somebody ended the run by force.
    ForceCanceled,
    /// The run failed.
    Errored,
    /// Status that needs nothing but patience, or that is not known.
    Other(String),
}

/// Statuses with the platform's words for them.
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
    // Two words for one status: the first is the moment before the second.
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

/// Statuses besides those of [`RunStatus`] that are known to come after the run was confirmed, so
/// that ending it could end an apply.
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
        // From the end, so that `apply_queued` is shown and not `queuing_apply`.
        let words = WORDS.iter().rev().find(|(_, status)| status == self);
        f.write_str(words.map_or("unknown", |(word, _)| word))
    }
}

/// Meaning of a status to whoever waits for the run.
///
/// | Phase | Goes on by itself | Ended | This driver, when it stops |
/// | --- | --- | --- | --- |
/// | `Queued` | yes | no | discards the run |
/// | `Planning` | yes | no | cancels the run |
/// | `Waiting` | no | no | discards the run |
/// | `Applying` | yes | no | leaves the run to itself |
/// | `Applied`, `Finished`, `SoftFailed`, `Failed` | no | yes | nothing |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The run waits for others, perhaps for long.
    Queued,
    /// The run goes on by itself towards a plan.
    Planning,
    /// The run goes on by itself, and changes infrastructure.
    Applying,
    /// The run waits for a person.
    Waiting,
    /// The run ended well, and infrastructure was changed.
    Applied,
    /// The run ended well, and nothing was changed.
    Finished,
    /// The run was only planned, and a policy failed that could be overridden.
    SoftFailed,
    /// The run ended, and not well.
    Failed,
}

impl Phase {
    /// Returns `true` if the run goes no further.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Applied | Self::Finished | Self::SoftFailed | Self::Failed)
    }
}

impl RunStatus {
    /// Returns the meaning of the status; `confirmable` is the run's own word that it waits for
    /// confirmation.
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
