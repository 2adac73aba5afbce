//! What happens to tasks, one after the other, as `GET /v1/events` tells it.

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};

use crate::{Change, Event, PlanId, TaskName};

/// An event in the life of a task, numbered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StreamEvent {
    /// Greater than that of everything earlier, also of what an earlier process told.
    pub id: u64,
    /// Time at which it was told.
    #[serde(serialize_with = "crate::time::rfc3339")]
    pub time: DateTime<Local>,
    /// The task.
    pub task_name: TaskName,
    /// The kind of event.
    #[serde(flatten)]
    pub kind: StreamEventKind,
}

/// The kinds of event in the life of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamEventKind {
    /// A run ended.
    Run {
        /// Event of the run.
        event: Box<Event>,
    },
    /// A driver told what it does.
    Progress {
        /// For a person, without secrets.
        line: String,
    },
    /// A plan waits for approval.
    PlanWaits {
        /// The plan.
        plan: PlanId,
    },
    /// The plan waits no longer: it was applied, discarded, or made again.
    PlanGone,
    /// The task was created or changed.
    TaskStored,
    /// The task was deleted.
    TaskDeleted,
}

impl StreamEventKind {
    /// Returns the event that a change of the state stands for, and its task;
    /// `None` for what only this process needs to know.
    pub(crate) fn of(change: &Change) -> Option<(&TaskName, Self)> {
        Some(match change {
            Change::PutTask(task) => (&task.name, Self::TaskStored),
            Change::DeleteTask(name) => (name, Self::TaskDeleted),
            Change::AddEvent(event) => (&event.task_name, Self::Run { event: event.clone() }),
            Change::PutPlan(name, plan) => (name, Self::PlanWaits { plan: plan.id.clone() }),
            Change::DeletePlan(name) => (name, Self::PlanGone),
            Change::DeleteEvents(_)
            | Change::SetApplied(..)
            | Change::SetDrift(..)
            | Change::PutDeletion(..)
            | Change::DeleteDeletion(_) => return None,
        })
    }
}
