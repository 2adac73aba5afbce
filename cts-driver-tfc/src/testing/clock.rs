//! Times of the double's documents.

use std::time::Duration;

use chrono::{SecondsFormat, Utc};

/// Returns the time of day as the platform writes it: RFC 3339, in UTC, with milliseconds.
pub(super) fn now() -> String {
    after(Duration::ZERO)
}

/// Returns the time of day after a while, as the platform writes it.
pub(super) fn after(delay: Duration) -> String {
    let delay = chrono::Duration::from_std(delay).unwrap_or_default();
    (Utc::now() + delay).to_rfc3339_opts(SecondsFormat::Millis, true)
}
