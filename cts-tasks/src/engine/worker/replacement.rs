//! A task that takes the place of one with its name.

use std::sync::Arc;

use super::{Done, Worker};
use crate::{
    Change, DriverFactory, Result, Stop, Task,
    engine::{command::Reply, guarded::discard, run::Run},
};

/// Another definition of a task, to take the place of the one that is there.
pub(super) struct Replacement {
    pub(super) task: Task,
    pub(super) factory: Arc<dyn DriverFactory>,
    pub(super) reply: Reply<()>,
}

impl Replacement {
    /// Makes the worker of the new definition ready, and stores that. If
    /// anything fails, the old one is made ready again, and stays.
    pub(super) async fn finish(self, old: Run, stop: Stop) -> Done {
        let worker = replace(self.task, &*self.factory, &old, &stop).await;
        if worker.is_err()
            && let Err(error) = old.driver.prepare(&old.context(&stop)).await
        {
            tracing::warn!(
                task.name = %old.task.name,
                error = &error as &dyn std::error::Error,
                "cannot prepare the task again as it was"
            );
        }
        Done::Replaced(worker.map(Box::new), self.reply)
    }
}

async fn replace(
    task: Task,
    factory: &dyn DriverFactory,
    old: &Run,
    stop: &Stop,
) -> Result<Worker> {
    let shared = Arc::clone(&old.shared);
    let worker = Worker::prepare(task.clone(), factory, shared, stop).await?;
    let mut batch = vec![Change::PutTask(Box::new(task))];
    if let Some(plan) = old.waiting_plan() {
        // It was made for the old definition.
        discard(old, &plan.id, &old.context(stop)).await;
        batch.push(Change::DeletePlan(old.task.name.clone()));
    }
    old.shared.cached_store.commit(&batch, stop).await?;
    Ok(worker)
}
