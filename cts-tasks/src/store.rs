//! Where tasks, events and plans are kept: the seam [`TaskStore`].

mod file;
mod memory;

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use file::FileStore;
pub use memory::MemoryStore;

use crate::{
    AppliedInputs, DriftCheck, Event, Plan, Result, ServiceInstance, Task, TaskInputs, TaskName,
};

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

/// A digest of what a task was given when it was last applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputsDigest(String);

/// A digest of one service instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstanceDigest([u8; 32]);

impl InstanceDigest {
    pub(crate) fn of(instance: &ServiceInstance) -> Self {
        Self(Sha256::digest(serde_json::to_vec(instance).unwrap_or_default()).into())
    }
}

/// A key as it goes into a digest, which must not change with the form in which people
/// read it: stores keep digests.
#[derive(Serialize)]
struct HashedKey<'a> {
    path: &'a str,
    value: &'a [u8],
}

/// Writes bytes as lower-case hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).collect()
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

impl InputsDigest {
    /// The digest of `inputs`; equal inputs have equal digests.
    pub fn of(inputs: &TaskInputs) -> Self {
        let instances = inputs.services.iter().flatten();
        let instances: Vec<_> = instances.map(|instance| InstanceDigest::of(instance)).collect();
        Self::compose(inputs, &instances)
    }

    /// The digest of `inputs` whose service instances have these digests, which
    /// costs little where only one of many instances changed.
    pub(crate) fn compose(inputs: &TaskInputs, instances: &[InstanceDigest]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([u8::from(inputs.services.is_some())]);
        hasher.update(instances.len().to_le_bytes());
        for instance in instances {
            hasher.update(instance.0);
        }
        let keys = inputs.consul_kv.as_ref().map(|keys| {
            keys.iter().map(|it| HashedKey { path: &it.path, value: &it.value }).collect::<Vec<_>>()
        });
        let rest = (&inputs.catalog_services, keys);
        hasher.update(serde_json::to_vec(&rest).unwrap_or_default());
        Self(hex(&hasher.finalize()))
    }

    /// The digest as lower-case hexadecimal text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
