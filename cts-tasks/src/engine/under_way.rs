//! The work on tasks that is under way now, for whoever asks what a daemon does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Local};

use super::Engine;
use crate::TaskName;

/// Work on a task that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnderWay {
    /// Time at which it began.
    pub since: DateTime<Local>,
    /// Step that the driver does now.
    pub step: WorkStep,
    /// The driver's last line of progress, for a person, without secrets. `None` also where
    /// nobody follows the events: then a driver need not tell.
    pub progress: Option<String>,
}

/// The step that a driver is working on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WorkStep {
    /// [`crate::Driver::prepare`].
    Prepare,
    /// [`crate::Driver::plan`].
    Plan,
    /// [`crate::Driver::apply`].
    Apply,
    /// [`crate::Driver::destroy`].
    Destroy,
}

/// All work under way, by task.
#[derive(Debug, Clone, Default)]
pub(super) struct AllWork(Arc<Mutex<BTreeMap<TaskName, UnderWay>>>);

impl AllWork {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskName, UnderWay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that work begins; dropping the result notes its end.
    pub(super) fn begin(&self, task: &TaskName, step: WorkStep) -> Working {
        let work = UnderWay { since: Local::now(), step, progress: None };
        self.lock().insert(task.clone(), work);
        Working { all: self.clone(), task: task.clone() }
    }

    /// Notes the next step of work that has begun.
    pub(super) fn step(&self, task: &TaskName, step: WorkStep) {
        if let Some(work) = self.lock().get_mut(task) {
            (work.step, work.progress) = (step, None);
        }
    }

    /// Notes a line of progress.
    pub(super) fn told(&self, task: &TaskName, line: &str) {
        if let Some(work) = self.lock().get_mut(task) {
            work.progress = Some(line.to_owned());
        }
    }
}

/// Work that has begun. One task has one at a time: the engine calls one driver after the other.
#[derive(Debug)]
pub(super) struct Working {
    all: AllWork,
    task: TaskName,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.all.lock().remove(&self.task);
    }
}

impl Engine {
    /// Returns the work on tasks that is under way now, by task.
    pub fn under_way(&self) -> BTreeMap<TaskName, UnderWay> {
        self.shared.work.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_there_from_its_begin_to_its_end() {
        let all = AllWork::default();
        let task: TaskName = "web".parse().unwrap();
        all.step(&task, WorkStep::Apply);
        all.told(&task, "nothing has begun");
        assert!(all.lock().is_empty());
        let working = all.begin(&task, WorkStep::Plan);
        all.told(&task, "refreshing");
        assert_eq!(all.lock()[&task].progress.as_deref(), Some("refreshing"));
        let since = all.lock()[&task].since;
        all.step(&task, WorkStep::Apply);
        let expected = UnderWay { since, step: WorkStep::Apply, progress: None };
        assert_eq!(all.lock()[&task], expected, "a line belongs to its step");
        drop(working);
        assert!(all.lock().is_empty());
    }
}
