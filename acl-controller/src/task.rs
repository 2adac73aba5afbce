//! The tasks that run: the first of the two seams.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;

use crate::Result;

/// What runs in one cluster.
///
/// A controller deletes the tokens of tasks that are not listed, so a listing is complete or an
/// error.
#[async_trait]
pub trait TaskSource: fmt::Debug + Send + Sync + 'static {
    /// Every task of the cluster whose last status is not `STOPPED`, each once, in any order.
    ///
    /// - A task that is being stopped is listed until it has stopped. On ECS these are the tasks
    ///   with the desired status `RUNNING`, and those with the desired status `STOPPED` that have
    ///   not got there. List them in this order: a task on its way from one list to the other is
    ///   then in at least one of them.
    /// - Tasks whose last status is `STOPPED` may be listed or not.
    /// - Tags are part of a task.
    /// - When a page cannot be had, the whole call fails.
    /// - A task that is listed but cannot be described goes to [`TaskListing::undescribed`].
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the cluster and says whether a retry can
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

/// What a [`TaskSource`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TaskListing {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Tasks that were listed but could not be described, as `failures` of ECS's `DescribeTasks`.
    /// They may run: nothing of theirs is deleted for their absence from `tasks` alone.
    pub undescribed: Vec<Undescribed>,
}

impl TaskListing {
    /// A listing in which every task could be described.
    pub fn new(tasks: Vec<Task>) -> Self {
        Self { tasks, undescribed: Vec::new() }
    }
}

/// A task that was listed but could not be described.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undescribed {
    /// Its ARN.
    pub arn: String,
    /// Why, such as `MISSING`.
    pub reason: String,
}

impl Undescribed {
    /// The task with this ARN, for this reason.
    pub fn new(arn: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { arn: arn.into(), reason: reason.into() }
    }
}

/// A task, as ECS describes it. Nothing of it is checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Task {
    /// Its ARN; empty when ECS did not say.
    pub arn: String,
    /// ARN of its task definition; empty when ECS did not say.
    pub task_definition_arn: String,
    /// `PROVISIONING`, …, `RUNNING`, …, `STOPPED`.
    pub last_status: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl Task {
    /// A running task without tags.
    pub fn new(arn: impl Into<String>, task_definition_arn: impl Into<String>) -> Self {
        Self {
            arn: arn.into(),
            task_definition_arn: task_definition_arn.into(),
            last_status: "RUNNING".to_owned(),
            tags: BTreeMap::new(),
        }
    }

    /// This task with another last status.
    #[must_use]
    pub fn with_last_status(mut self, status: impl Into<String>) -> Self {
        self.last_status = status.into();
        self
    }

    /// This task with a further tag.
    #[must_use]
    pub fn with_tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    /// Whether it is over: it needs its token until then, also while it stops.
    pub fn is_stopped(&self) -> bool {
        // ECS shows `DELETED` for a while after it.
        matches!(self.last_status.as_str(), "STOPPED" | "DELETED")
    }
}
