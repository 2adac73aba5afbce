//! Requests and answers about tasks.

use serde::{Deserialize, Serialize};

use super::TaskDocument;
use crate::PlannedResources;

/// The request that creates a task, and the answer that shows one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMessage {
    /// The task.
    pub task: TaskDocument,
}

/// `GET /v1/tasks`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskList {
    /// In the order in which they were configured or created.
    pub tasks: Vec<TaskDocument>,
}

/// `POST /v1/tasks`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatedTask {
    /// The task as it was understood.
    pub task: TaskDocument,
    /// Only of a task that was inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<InspectedTask>,
}

/// A preview of the first run of a new task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedTask {
    /// For people.
    pub plan: String,
    /// `true` if the run would change anything.
    pub changes_present: bool,
    /// Resources that would change, with sensitive values masked; left out where the driver
    /// has no such list. Upstream has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<PlannedResources>,
    /// URL of the run in Terraform Cloud, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tfc_run_url: Option<String>,
}

/// The request `PATCH /v1/tasks/{name}`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUpdate {
    /// State that the task is to have.
    pub enabled: bool,
}

/// The answer to `PATCH /v1/tasks/{name}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatedTask {
    /// Only of an update that was inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect: Option<InspectedUpdate>,
}

/// A preview of a run after an update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedUpdate {
    /// `true` if the run would change anything.
    pub changes_present: bool,
    /// For people.
    pub plan: String,
    /// Resources that would change, with sensitive values masked; left out where the driver
    /// has no such list. Upstream has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<PlannedResources>,
    /// URL of the plan, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Every answer outside 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// The error's message.
    pub error: ErrorMessage,
    /// Names the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The inner part of an [`ErrorDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorMessage {
    /// For people.
    pub message: String,
}
