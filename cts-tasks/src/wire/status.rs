//! Answers about status, events and the cluster.

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};

use crate::{DriftCheck, Event, Member, PlanId, Status, WorkStep};

/// `GET /v1/status`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverallStatus {
    /// All tasks, counted.
    pub task_summary: TaskSummary,
}

/// The inner part of an [`OverallStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// By status.
    pub status: StatusCounts,
    /// By whether they are enabled.
    pub enabled: EnabledCounts,
}

/// Numbers of tasks by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounts {
    /// See [`Status::Successful`].
    pub successful: usize,
    /// See [`Status::Errored`].
    pub errored: usize,
    /// See [`Status::Critical`].
    pub critical: usize,
    /// See [`Status::Unknown`].
    pub unknown: usize,
    /// See [`Status::Waiting`]; left out where there is none, as upstream has no such field.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Numbers of tasks that are enabled, and that are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnabledCounts {
    /// Enabled tasks.
    #[serde(rename = "true")]
    pub enabled: usize,
    /// Disabled tasks.
    #[serde(rename = "false")]
    pub disabled: usize,
}

/// A task in `GET /v1/status/tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The task's name.
    pub task_name: String,
    /// Told from the stored events.
    pub status: Status,
    /// `true` if the task runs at all.
    pub enabled: bool,
    /// Path of the task's events; empty while there are none.
    pub events_url: String,
    /// The newest first, at most five, and only if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// The plan that waits for approval, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_plan: Option<PlanId>,
    /// The work that is under way now, if there is some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<WorkDocument>,
    /// Result of the last check for drift, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftCheck>,
    /// Ids of its providers.
    #[serde(default)]
    pub providers: Vec<String>,
    /// Names in the deprecated list of services; empty for a task without one.
    #[serde(default)]
    pub services: Vec<String>,
}

/// Work on a task that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDocument {
    /// Time at which it began.
    #[serde(serialize_with = "crate::time::rfc3339")]
    pub since: DateTime<Local>,
    /// Step that the driver does now.
    pub step: WorkStep,
    /// The driver's last line of progress. Left out where it told none; it tells them while
    /// somebody follows the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

/// `GET /v1/status/cluster`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster_name: String,
    /// All members that Consul knows.
    pub members: Vec<Member>,
}
