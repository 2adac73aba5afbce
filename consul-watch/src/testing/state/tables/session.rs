//! Sessions, with what their type does not keep.

use tokio::time::Instant;

use crate::types::Session;

/// A session, and what its type does not keep.
#[derive(Debug, Clone)]
pub(in crate::testing) struct SessionRecord {
    pub(in crate::testing) session: Session,
    /// As it was written.
    pub(in crate::testing) ttl: String,
    /// `None` where it was `null`.
    pub(in crate::testing) node_checks: Option<Vec<String>>,
    pub(in crate::testing) service_checks: Vec<String>,
    pub(in crate::testing) delete_keys: bool,
    pub(in crate::testing) expires: Option<Instant>,
}
