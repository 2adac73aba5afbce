//! Where tasks, events and plans are kept: the seam [`TaskStore`].

mod file;
mod memory;

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use file::FileStore;
pub use memory::MemoryStore;

use crate::{AppliedInputs, DriftCheck, Event, Plan, Result, Task, TaskName};

/// Number of events of a task that are kept.
///
/// Source: Consul-Terraform-Sync 0.9, event storage.
pub const EVENTS_PER_TASK: usize = 5;

/// Keeps the state of a deployment.
///
/// `commit` is all or nothing, and what it has acknowledged `load` returns,
/// also after a crash if the store outlives the process. Only one process
/// commits at a time; a store that can tell refuses the others with
/// [`crate::Error::Fenced`], which no retry cures.
#[async_trait]
pub trait TaskStore: fmt::Debug + Send + Sync + 'static {
    /// Reads everything.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Other`] or [`crate::Error::Consul`] when the store cannot be read.
    async fn load(&self) -> Result<State>;

    /// Applies the changes in order, all or none. An empty batch does nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Fenced`] when another process owns the data now; else
    /// what the store reports. After an error that may be retried the batch is
    /// either wholly applied or not at all, and committing it again is safe.
    async fn commit(&self, batch: &[Change]) -> Result<()>;
}

/// Everything that a store keeps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct State {
    /// The tasks in the order in which they were first put.
    pub tasks: Vec<Task>,
    /// Events of each task, the newest first, at most [`EVENTS_PER_TASK`].
    pub events: BTreeMap<TaskName, Vec<Event>>,
    /// Plans that wait for approval, at most one for each task.
    pub plans: BTreeMap<TaskName, Plan>,
    /// Inputs last applied.
    pub applied: BTreeMap<TaskName, AppliedInputs>,
    /// Result of each task's last check for drift.
    #[serde(default)]
    pub drift: BTreeMap<TaskName, DriftCheck>,
    /// Tasks that are to go as soon as nothing of them runs any more.
    #[serde(default)]
    pub deletions: BTreeMap<TaskName, Deletion>,
}

/// A deletion that was asked for and has not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// The infrastructure stays in any case.
    pub spare: bool,
}

/// A change of a [`State`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Change {
    /// Replaces the task of this name in its place, or appends it.
    PutTask(Box<Task>),
    /// Removes the task with its events, plan, digest, drift and deletion. An unknown name is
    /// no error.
    DeleteTask(TaskName),
    /// Adds an event as the task's newest and drops what is over the limit.
    AddEvent(Box<Event>),
    /// Removes a task's events.
    DeleteEvents(TaskName),
    /// Puts the plan that waits for approval in place of any other of the task.
    PutPlan(TaskName, Box<Plan>),
    /// Removes the waiting plan.
    DeletePlan(TaskName),
    /// Notes what was applied last.
    SetApplied(TaskName, AppliedInputs),
    /// Notes what a check for drift found, in place of any earlier one.
    SetDrift(TaskName, Box<DriftCheck>),
    /// Notes that a task is to go; without effect on an unknown name.
    PutDeletion(TaskName, Deletion),
    /// Notes that a task stays.
    DeleteDeletion(TaskName),
}

impl State {
    /// Applies one change. All stores share this meaning of it.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::PutTask(task) => {
                match self.tasks.iter_mut().find(|known| known.name == task.name) {
                    Some(known) => known.clone_from(task),
                    None => self.tasks.push(Task::clone(task)),
                }
            }
            Change::DeleteTask(name) => {
                self.tasks.retain(|task| task.name != *name);
                self.events.remove(name);
                self.plans.remove(name);
                self.applied.remove(name);
                self.drift.remove(name);
                self.deletions.remove(name);
            }
            Change::PutDeletion(name, deletion) => {
                if self.tasks.iter().any(|task| task.name == *name) {
                    self.deletions.insert(name.clone(), *deletion);
                }
            }
            Change::DeleteDeletion(name) => {
                self.deletions.remove(name);
            }
            Change::AddEvent(event) => {
                let events = self.events.entry(event.task_name.clone()).or_default();
                events.insert(0, Event::clone(event));
                events.truncate(EVENTS_PER_TASK);
            }
            Change::DeleteEvents(name) => {
                self.events.remove(name);
            }
            Change::PutPlan(name, plan) => {
                self.plans.insert(name.clone(), Plan::clone(plan));
            }
            Change::DeletePlan(name) => {
                self.plans.remove(name);
            }
            Change::SetApplied(name, applied) => {
                self.applied.insert(name.clone(), applied.clone());
            }
            Change::SetDrift(name, check) => {
                self.drift.insert(name.clone(), DriftCheck::clone(check));
            }
        }
    }
}
