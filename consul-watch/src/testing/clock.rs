//! `TestClock`: a wall clock that a test sets.

use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::Clock;

/// A [`Clock`] that follows tokio's, so that it stands still and jumps with a paused one.
#[derive(Debug, Clone, Copy)]
pub struct TestClock {
    wall: SystemTime,
    start: Instant,
}

impl TestClock {
    /// A clock whose wall time is `wall` now.
    pub fn starting_at(wall: SystemTime) -> Self {
        Self { wall, start: Instant::now() }
    }
}

impl Default for TestClock {
    /// Starts at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        Self::starting_at(SystemTime::UNIX_EPOCH + Duration::from_hours(490_896))
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        self.wall + self.start.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
