use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Local};
use consul_watch::Clock;

use crate::{Condition, Cron, Task};

/// When a scheduled task runs next, by the local time of day.
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
            // Configuration has checked it.
            Condition::Schedule { cron } => cron.parse().ok(),
            _ => None,
        };
        Self { cron, clock, next: None }
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
