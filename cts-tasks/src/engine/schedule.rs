//! The next time at which a cron expression fires.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Local};
use consul_watch::Clock;

use crate::{Condition, Cron, Task};

/// When a task is due next, by the local time of day.
#[derive(Debug)]
pub(crate) struct Schedule {
    cron: Option<Cron>,
    clock: Arc<dyn Clock>,
    next: Option<DateTime<Local>>,
}

/// The longest sleep: after it the clock is read again, because it may have
/// been set, or the machine suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

impl Schedule {
    /// The task's schedule; a task without one never runs by the clock.
    pub(crate) fn of(task: &Task, clock: Arc<dyn Clock>) -> Self {
        let cron = match &task.condition {
            Condition::Schedule { cron } => Some(cron.as_str()),
            _ => None,
        };
        Self::new(cron, clock)
    }

    /// When the task is checked for drift; never unless it says so.
    pub(crate) fn of_drift_checks(task: &Task, clock: Arc<dyn Clock>) -> Self {
        Self::new(task.drift_check.as_deref(), clock)
    }

    fn new(cron: Option<&str>, clock: Arc<dyn Clock>) -> Self {
        // Configuration has checked it.
        Self { cron: cron.and_then(|cron| cron.parse().ok()), clock, next: None }
    }

    /// Waits until the next run is due; for ever when there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) {
        loop {
            let now = self.now();
            let Some(next) = self.next.or_else(|| self.cron.as_ref()?.next_after(&now)) else {
                return std::future::pending().await;
            };
            self.next = Some(next);
            let left = (next - now).to_std().unwrap_or_default();
            if left.is_zero() {
                self.next = None;
                return;
            }
            self.clock.sleep(left.min(LONGEST_SLEEP)).await;
        }
    }

    fn now(&self) -> DateTime<Local> {
        self.clock.now().into()
    }
}
