//! The task's metadata as ECS serves it (version 4).

mod file;
mod http;
mod task;

use std::sync::Arc;

use async_trait::async_trait;

use crate::Result;

pub use file::FileTaskMetadata;
pub use http::{HttpTaskMetadata, METADATA_VARIABLE};
pub use task::{Container, ContainerHealth, Network, Task};

/// Source of the task's metadata.
///
/// Each call reads the present state. Dropping the future has no effect.
#[async_trait]
pub trait TaskMetadata: std::fmt::Debug + Send + Sync + 'static {
    /// Reads the task as it is now.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`](crate::Error::Metadata) if it is not available.
    async fn task(&self) -> Result<Task>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: TaskMetadata + ?Sized> TaskMetadata for Arc<T> {
    async fn task(&self) -> Result<Task> {
        (**self).task().await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: TaskMetadata + ?Sized> TaskMetadata for Box<T> {
    async fn task(&self) -> Result<Task> {
        (**self).task().await
    }
}
