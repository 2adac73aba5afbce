//! The built program, as a user runs it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod elect;

use std::time::Duration;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
