//! A clock that stands still until a test moves it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::clock::Clock;

/// A clock that stands still until a test moves it. A clone is the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<Mutex<SystemTime>>,
}

impl Default for ManualClock {
    /// Stands at some time in 2025.
    fn default() -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000);
        Self { now: Arc::new(Mutex::new(now)) }
    }
}

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
