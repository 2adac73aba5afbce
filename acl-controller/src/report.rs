use crate::{Change, Error};

/// What one pass found and did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Tasks of the mesh that run.
    pub tasks: usize,
    /// Tasks whose tags or ARN say nothing usable, and which were passed over.
    pub skipped: usize,
    /// Services (or, where tokens come from logins, tasks) that were looked at.
    pub resources: usize,
    /// Resources that were put off: a try failed a moment ago, or the other side is not there.
    pub postponed: usize,
    /// What was changed, or in a dry run would have been. Sorted.
    pub changes: Vec<Change>,
    /// What failed; the rest was done all the same.
    pub errors: Vec<Error>,
}

impl Report {
    /// Whether everything is as it has to be, or was brought there.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.postponed == 0
    }

    /// The errors as one; `None` without any.
    pub fn into_error(self) -> Option<Error> {
        Error::several(self.errors)
    }
}
