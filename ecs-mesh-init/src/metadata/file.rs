//! Metadata from a file, for use outside ECS.

use std::path::PathBuf;

use async_trait::async_trait;

use super::{Task, TaskMetadata};
use crate::{Error, Result};

/// Metadata in a file, for tests and for trials outside ECS.
#[derive(Debug, Clone)]
pub struct FileTaskMetadata {
    path: PathBuf,
}

impl FileTaskMetadata {
    /// Creates a source that reads this file on each call.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl TaskMetadata for FileTaskMetadata {
    async fn task(&self) -> Result<Task> {
        let bytes = tokio::fs::read(&self.path).await.map_err(|error| Error::Metadata {
            step: format!("reading metadata file {}", self.path.display()),
            source: error.into(),
        })?;
        Task::parse(&bytes)
    }
}
