//! Objections of a task's guard to a plan, and the plan that waits for them.

use std::fmt;

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};

use crate::{Changes, Guard, InputsDigest};

impl Guard {
    /// Why these changes may not be made without a person; `None` if they may.
    pub fn objection(&self, changes: &Changes) -> Option<Objection> {
        match self.max_destroy {
            _ if changes.is_empty() => None,
            Some(limit) if changes.destroy > limit => {
                Some(Objection::TooManyDestroyed { planned: changes.destroy, limit })
            }
            _ if self.require_approval => Some(Objection::ApprovalRequired),
            _ => None,
        }
    }
}

/// Why a plan waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Objection {
    /// It destroys more than [`Guard::max_destroy`].
    TooManyDestroyed {
        /// Number of resources that the plan destroys.
        planned: u64,
        /// Number that it may destroy.
        limit: u64,
    },
    /// [`Guard::require_approval`].
    ApprovalRequired,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyDestroyed { planned, limit } => {
                write!(f, "it would destroy {planned} resources, and max_destroy is {limit}")
            }
            Self::ApprovalRequired => f.write_str("the task requires approval"),
        }
    }
}

/// The engine's note of a plan that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// Why it waits.
    pub objection: Objection,
    /// The inputs that it was made for; it is not applied once these are others.
    pub inputs: InputsDigest,
    /// Since when it waits.
    pub since: DateTime<Local>,
}

impl Waiting {
    /// A note of now.
    pub fn new(objection: Objection, inputs: InputsDigest) -> Self {
        Self { objection, inputs, since: Local::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;

    fn destroying(count: usize) -> Changes {
        let mut changes = Changes::default();
        for number in 0..count {
            changes.record(format!("r[{number}]"), Action::Delete);
        }
        changes
    }

    #[test]
    fn only_what_is_over_the_limit_is_objected_to() {
        let guard = Guard { max_destroy: Some(2), require_approval: false };
        assert_eq!(guard.objection(&destroying(2)), None);
        let objection = guard.objection(&destroying(3)).unwrap();
        assert_eq!(objection.to_string(), "it would destroy 3 resources, and max_destroy is 2");
        let mut replaced = Changes::default();
        replaced.record("r", Action::Replace);
        let none = Guard { max_destroy: Some(0), require_approval: false };
        assert!(none.objection(&replaced).is_some(), "a replacement destroys");
    }

    #[test]
    fn approval_is_required_of_every_plan_that_changes_something() {
        let guard = Guard { max_destroy: None, require_approval: true };
        assert_eq!(guard.objection(&Changes::default()), None);
        let mut changes = Changes::default();
        changes.record("r", Action::Create);
        assert_eq!(guard.objection(&changes), Some(Objection::ApprovalRequired));
        assert_eq!(Guard::default().objection(&changes), None);
    }
}
