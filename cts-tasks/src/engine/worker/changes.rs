//! Changes that a driver tells of, of what its task uses besides what Consul tells the engine.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};

use super::{Due, Trigger, Worker};
use crate::Condition;

impl Worker {
    /// Waits for the next change; see [`crate::Driver::changed`].
    pub(super) fn driver_changes(&self) -> BoxFuture<'static, ()> {
        let driver = Arc::clone(&self.driver);
        async move { driver.changed().await }.boxed()
    }

    /// Has the task run with what its driver uses now; a task with a schedule does at its time.
    pub(super) fn driver_changed(&self, changes: &mut BoxFuture<'static, ()>, due: &mut Due) {
        tracing::info!(task.name = %self.task.name, "a value that the task uses has changed");
        *changes = self.driver_changes();
        self.view().mark_dirty();
        if !matches!(self.task.condition, Condition::Schedule { .. }) {
            due.trigger = Some(Trigger::Change);
        }
    }
}
