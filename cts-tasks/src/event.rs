//! Events of runs, and the status that follows from them.

use std::path::{Component, Path};

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Changes, PlanId, Task, TaskName};

/// The outcome of one run of a task: rendering, applying and all retries together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Identifies it.
    pub id: Uuid,
    /// `true` if the run succeeded.
    pub success: bool,
    /// When it began.
    #[serde(serialize_with = "crate::time::rfc3339")]
    pub start_time: DateTime<Local>,
    /// When it ended.
    #[serde(serialize_with = "crate::time::rfc3339")]
    pub end_time: DateTime<Local>,
    /// The task of the run.
    pub task_name: TaskName,
    /// The failure, if the run failed.
    pub error: Option<EventError>,
    /// The task at that time.
    pub config: EventConfig,
    /// Changes that were made, where the driver can tell; for a plan that waits,
    /// those that it would make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// The plan that the run left waiting for approval. Such a run has applied
    /// nothing, so it is no success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_plan: Option<PlanId>,
    /// Further lines from the driver about the run: estimated costs, the outcomes
    /// of policies. Left out of the document where there is none, as upstream has
    /// no such field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventError {
    /// For people; holds the tool's diagnostics.
    pub message: String,
}

/// The part of a task's configuration that upstream repeats in each event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventConfig {
    /// Provider ids.
    pub providers: Vec<String>,
    /// Names in the deprecated list of services; empty for a task without one.
    pub services: Vec<String>,
    /// The module's source; of a local module its absolute path, and empty for a task without one.
    pub source: String,
}

impl EventConfig {
    /// The part of `task` that events repeat.
    pub fn of(task: &Task) -> Self {
        Self {
            providers: task.providers.clone(),
            services: task.listed_services(),
            source: absolute(&task.module),
        }
    }
}

/// The source of a module, with a relative path made absolute.
///
/// Source: Consul-Terraform-Sync 0.9.0 `driver/terraform.go`, which resolves it against
/// the working directory of the process.
fn absolute(module: &str) -> String {
    if !module.starts_with("./") && !module.starts_with("../") {
        return module.to_owned();
    }
    let Ok(mut path) = std::env::current_dir() else { return module.to_owned() };
    for part in Path::new(module).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path.display().to_string()
}

/// A task's state, told from its stored events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The newest run succeeded.
    Successful,
    /// The newest run failed, and no other of the stored ones did.
    Errored,
    /// The newest run failed, and at least one more of the stored ones.
    Critical,
    /// The newest run left a plan waiting for approval. Not a status of upstream's.
    Waiting,
    /// No run is stored.
    Unknown,
}

impl Status {
    /// As the HTTP API names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Successful => "successful",
            Self::Errored => "errored",
            Self::Critical => "critical",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }

    /// Tells the status from events, the newest first, and from the plan that waits for
    /// approval, if there is one. A run that left a plan waiting is no failure: once the
    /// plan waits no longer, only the other events count.
    ///
    /// Source: Consul-Terraform-Sync 0.9, status of a task.
    pub fn of<'a>(
        newest_first: impl IntoIterator<Item = &'a Event>,
        waiting_plan: Option<&PlanId>,
    ) -> Self {
        let mut events = newest_first.into_iter().peekable();
        let newest = events.peek().and_then(|event| event.waiting_plan.as_ref());
        if newest.is_some() && newest == waiting_plan {
            return Self::Waiting;
        }
        let mut events = events.filter(|event| event.waiting_plan.is_none());
        match events.next() {
            None => Self::Unknown,
            Some(newest) if newest.success => Self::Successful,
            Some(_) if events.any(|event| !event.success) => Self::Critical,
            Some(_) => Self::Errored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of a task without anything but its success.
    fn event(success: bool) -> Event {
        Event {
            id: Uuid::nil(),
            success,
            start_time: DateTime::UNIX_EPOCH.into(),
            end_time: DateTime::UNIX_EPOCH.into(),
            task_name: TaskName::try_from("t".to_owned()).unwrap(),
            error: None,
            config: EventConfig { providers: Vec::new(), services: Vec::new(), source: "m".into() },
            changes: None,
            waiting_plan: None,
            notes: Vec::new(),
        }
    }

    /// Spec: CTS74
    #[test]
    fn the_status_comes_from_the_stored_events() {
        for (newest_first, expected) in [
            (&[true, false, false][..], Status::Successful),
            (&[false], Status::Errored),
            (&[false, true, true], Status::Errored),
            (&[false, false], Status::Critical),
            (&[false, true, false], Status::Critical),
            (&[], Status::Unknown),
        ] {
            let events: Vec<Event> = newest_first.iter().map(|success| event(*success)).collect();
            assert_eq!(Status::of(&events, None), expected, "{newest_first:?}");
        }
    }

    #[test]
    fn a_plan_that_waits_is_no_failure() {
        let waits = |plan: &str| Event { waiting_plan: Some(PlanId::new(plan)), ..event(false) };
        let (one, two) = (PlanId::new("one"), PlanId::new("two"));
        for (newest_first, waiting, expected) in [
            (vec![waits("one"), event(true)], Some(&one), Status::Waiting),
            (vec![waits("two"), waits("one"), event(false)], Some(&two), Status::Waiting),
            // It was discarded, or it gave way to another one.
            (vec![waits("one"), event(true)], None, Status::Successful),
            (vec![waits("one")], None, Status::Unknown),
            (vec![event(false), waits("one"), event(true)], None, Status::Errored),
            (vec![event(false), waits("one"), event(false)], None, Status::Critical),
            // What was approved failed, and can be approved again.
            (vec![event(false), waits("one")], Some(&one), Status::Errored),
        ] {
            assert_eq!(Status::of(&newest_first, waiting), expected, "{newest_first:?}");
        }
    }
}
