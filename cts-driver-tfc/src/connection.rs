//! State that the drivers of all tasks share: the client and facts about the platform.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cts_tasks::{Error as TaskError, Result as TaskResult, RunContext};

use crate::{
    Client, Settings,
    types::{ConfigurationVersionId, Server, WorkspaceId},
    variables::Written,
};

/// Client and known facts about the platform, shared by the drivers of all tasks.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) settings: Settings,
    client: OnceLock<(Client, Server)>,
    pub(crate) written: Written,
    uploads: Mutex<HashMap<WorkspaceId, Upload>>,
}

/// Newest upload of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) digest: String,
    pub(crate) id: ConfigurationVersionId,
}

impl Connection {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            client: OnceLock::new(),
            written: Written::default(),
            uploads: Mutex::default(),
        }
    }

    /// Stores the client that was found to work; the first one stays.
    pub(crate) fn connect(&self, client: Client, server: Server) {
        if self.client.set((client, server)).is_err() {
            tracing::debug!("the driver was started already");
        }
    }

    /// Returns the client, once the factory was started.
    pub(crate) fn client(&self) -> TaskResult<&Client> {
        match self.client.get() {
            Some((client, _)) => Ok(client),
            None => Err(TaskError::Driver {
                message: "the driver \"terraform-cloud\" was not started".to_owned(),
                retryable: false,
                source: None,
            }),
        }
    }

    /// Returns the client for one call of a driver, which checks the call's permit.
    pub(crate) fn client_for(&self, context: &RunContext) -> TaskResult<Client> {
        Ok(self.client()?.permitted(Arc::clone(&context.permit)))
    }

    /// Returns `true` if the platform supports tags.
    pub(crate) fn has_tags(&self) -> bool {
        self.client.get().is_none_or(|(_, server)| server.has_tags())
    }

    pub(crate) fn upload(&self, workspace: &WorkspaceId) -> Option<Upload> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).get(workspace).cloned()
    }

    /// Stores the newest upload, or that there is no usable one.
    pub(crate) fn note_upload(&self, workspace: &WorkspaceId, upload: Option<Upload>) {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        match upload {
            Some(upload) => uploads.insert(workspace.clone(), upload),
            None => uploads.remove(workspace),
        };
    }
}
