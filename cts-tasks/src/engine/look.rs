//! What the status page shows of an engine beside its state, read when somebody looks.

use std::{sync::PoisonError, time::Duration};

use chrono::{DateTime, Local};
use consul_watch::Watcher;
use tokio::time::Instant;

use super::Engine;
use crate::{Finding, TaskName};

/// A reason why a task does not run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Consul's first answers: so many, and one of them by its name.
    Consul(usize, String),
    /// The end of its buffer period, in so long.
    Buffer(Duration),
    /// The pause before its next try.
    Retry(Duration),
}

impl Engine {
    /// The watcher that all tasks read through.
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.shared.watcher
    }

    /// Now, by the clock that schedules follow.
    pub(crate) fn now(&self) -> DateTime<Local> {
        self.shared.options.clock.now().into()
    }

    /// Returns the reason why a task waits; `None` if it is nothing, or the task has no worker.
    pub(crate) fn waits_for(&self, task: &TaskName) -> Option<WaitsFor> {
        let view = self.shared.views.get(task)?;
        let view = view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = view.missing().first() {
            return Some(WaitsFor::Consul(view.missing().len(), first.to_string()));
        }
        let left = |until: Option<Instant>| {
            let left = until?.saturating_duration_since(Instant::now());
            Some(left).filter(|left| !left.is_zero())
        };
        let buffer = left(view.pauses.buffer).map(WaitsFor::Buffer);
        buffer.or_else(|| left(view.pauses.retry).map(WaitsFor::Retry))
    }

    /// Checks the driver, as `doctor` does.
    pub(crate) async fn check_driver(&self) -> Vec<Finding> {
        self.factory.check().await
    }
}
