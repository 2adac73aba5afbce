//! The result of a pass.

use crate::{Change, Error};

/// Result of one pass.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of running tasks of the mesh.
    pub tasks: usize,
    /// Number of tasks that were skipped, because their tags or ARN are unusable.
    pub skipped: usize,
    /// Number of services (or, where tokens come from logins, tasks) that were compared.
    pub resources: usize,
    /// Number of resources that were postponed: an attempt failed a moment ago, or there is an
    /// outage.
    pub postponed: usize,
    /// Changes that were made, or would have been in a dry run. Sorted.
    pub changes: Vec<Change>,
    /// Errors of single resources; the rest was done all the same.
    pub errors: Vec<Error>,
}

impl Report {
    /// Returns `true` if everything is as it has to be.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.postponed == 0
    }

    /// Combines the errors into one; `None` if there are none.
    pub fn into_error(self) -> Option<Error> {
        Error::several(self.errors)
    }
}
