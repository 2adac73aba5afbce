//! What the tests of the backend share: a server, and the resources of one type.

use consul_watch::testing::parts::Suite;

use super::server::{Programs, Server};
pub(super) use crate::support::things::*;

pub(super) const SUITE: Suite = Suite("postgres faults");

/// The programs for a case, or the report that it does not run.
pub(super) fn programs(case: &str) -> Option<Programs> {
    Programs::find(SUITE, case)
}

/// A server that is this test's alone.
pub(super) async fn server(case: &str) -> Option<Server> {
    Some(Server::start(&programs(case)?).await)
}
