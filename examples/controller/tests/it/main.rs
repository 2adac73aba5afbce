//! The controllers, as a user of the programs sees them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod singleton;

use std::time::Duration;

use consul_watch::testing::{parts::Suite, real::Consul};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A real Consul server whose sessions may be short, if there is one; if not,
/// the report says that `case` did not run.
pub(crate) async fn real_consul(suite: Suite, case: &str) -> Option<Consul> {
    let part = suite.part_in_turn("consul", case)?;
    let settings = serde_json::json!({ "session_ttl_min": "1s" });
    Some(Consul::start_with(&part.path, settings).await.unwrap())
}
