//! Guards of tasks.

use serde::{Deserialize, Serialize};

/// The limits that a plan has to keep to be applied without a person.
///
/// A task with a guard is planned first, and what is applied is that plan. One
/// that the guard objects to waits in the store until somebody approves it by
/// its id or discards it, or newer inputs take its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Guard {
    /// The most resources that one run may destroy, replacements included;
    /// `None`, the default, sets no bound.
    pub max_destroy: Option<u64>,
    /// `true` if every plan with changes has to be approved; false by default.
    pub require_approval: bool,
}

impl Guard {
    /// Returns `true` if it could object to anything at all.
    pub fn is_set(&self) -> bool {
        self.max_destroy.is_some() || self.require_approval
    }
}
