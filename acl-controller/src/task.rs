//! The seam to the running tasks: the first of the crate's two seams.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;

use crate::Result;

/// Source of the tasks of one cluster.
///
/// A controller deletes the tokens of tasks that are not listed, so a listing is either complete or
/// an error.
#[async_trait]
pub trait TaskSource: fmt::Debug + Send + Sync + 'static {
    /// Lists every task of the cluster whose last status is not `STOPPED`, each once, in any order.
    ///
    /// - A task that is being stopped is listed until it has stopped. On ECS these are the tasks
    ///   with the desired status `RUNNING`, and those with the desired status `STOPPED` that have
    ///   not got there. List them in this order: a task on its way from one list to the other is
    ///   then in at least one of them.
    /// - Tasks whose last status is `STOPPED` may be listed or not.
    /// - Tags are part of a task.
    /// - If a page is not available, the whole call fails.
    /// - A task that is listed but cannot be described belongs in [`TaskListing::undescribed`].
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the cluster and states whether a retry can
    /// help; a throttled call is retryable.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the listing and leaves nothing behind.
    async fn tasks(&self) -> Result<TaskListing>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: TaskSource + ?Sized> TaskSource for Arc<T> {
    async fn tasks(&self) -> Result<TaskListing> {
        (**self).tasks().await
    }
}

/// Tasks that a [`TaskSource`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TaskListing {
    /// Described tasks.
    pub tasks: Vec<Task>,
    /// Tasks that were listed but could not be described, as `failures` of ECS's `DescribeTasks`.
    /// They may run: nothing of theirs is deleted for their absence from `tasks` alone.
    pub undescribed: Vec<Undescribed>,
}

impl TaskListing {
    /// Creates a listing in which every task was described.
    pub fn new(tasks: Vec<Task>) -> Self {
        Self { tasks, undescribed: Vec::new() }
    }
}

/// Task that was listed but could not be described.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undescribed {
    /// ARN of the task.
    pub arn: String,
    /// Reason, such as `MISSING`.
    pub reason: String,
}

impl Undescribed {
    /// Creates an entry.
    pub fn new(arn: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { arn: arn.into(), reason: reason.into() }
    }
}

/// Task as ECS describes it, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Task {
    /// ARN; empty if ECS did not report it.
    pub arn: String,
    /// ARN of its task definition; empty if ECS did not report it.
    pub task_definition_arn: String,
    /// Last status: `PROVISIONING`, …, `RUNNING`, …, `STOPPED`.
    pub last_status: String,
    /// Tags of the task.
    pub tags: BTreeMap<String, String>,
}

impl Task {
    /// Creates a running task without tags.
    pub fn new(arn: impl Into<String>, task_definition_arn: impl Into<String>) -> Self {
        Self {
            arn: arn.into(),
            task_definition_arn: task_definition_arn.into(),
            last_status: "RUNNING".to_owned(),
            tags: BTreeMap::new(),
        }
    }

    /// Returns the task with another last status.
    #[must_use]
    pub fn with_last_status(mut self, status: impl Into<String>) -> Self {
        self.last_status = status.into();
        self
    }

    /// Returns the task with a further tag.
    #[must_use]
    pub fn with_tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    /// Returns `true` if it has stopped. While it stops it still needs its token.
    pub fn is_stopped(&self) -> bool {
        // ECS shows `DELETED` for a while after `STOPPED`.
        matches!(self.last_status.as_str(), "STOPPED" | "DELETED")
    }
}
