//! What the modules of tasks would get now, for those who look.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::{Engine, view::View};
use crate::{AppliedInputs, Error, InputsDigest, Result, TaskInputs, TaskName, applied::summaries};

/// The views of each task that has a worker; two while one definition replaces another.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<BTreeMap<TaskName, Vec<Weak<Mutex<View>>>>>);

impl Views {
    /// Notes a view of a task, which counts before any earlier one while it lives.
    pub(super) fn put(&self, task: &TaskName, view: &Arc<Mutex<View>>) {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|_, views| {
            views.retain(|view| view.strong_count() > 0);
            !views.is_empty()
        });
        views.entry(task.clone()).or_default().push(Arc::downgrade(view));
    }

    pub(super) fn get(&self, task: &TaskName) -> Option<Arc<Mutex<View>>> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.get(task)?.iter().rev().find_map(Weak::upgrade)
    }
}

/// The current inputs of a task's module, beside those that were last applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentInputs {
    /// Current inputs with their digest; `None` until Consul has answered
    /// everything once, and of a disabled task.
    pub now: Option<(TaskInputs, InputsDigest)>,
    /// Inputs that were last applied; `None` when nothing was, as far as the store
    /// knows.
    pub applied: Option<AppliedInputs>,
}

impl Engine {
    /// Returns what the module of a task would get now.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`].
    pub fn inputs(&self, task: &TaskName) -> Result<CurrentInputs> {
        let known = self.state(|state| {
            let known = state.tasks.iter().any(|it| it.name == *task);
            known.then(|| state.applied.get(task).cloned())
        });
        let Some(stored) = known else {
            return Err(Error::NoSuchTask { task: task.to_string() });
        };
        let view = self.shared.views.get(task);
        let view = view.as_ref().map(|view| view.lock().unwrap_or_else(PoisonError::into_inner));
        // This process knows all that it applied itself, however much that is.
        let known = view.as_ref().and_then(|view| view.applied());
        let applied = stored.map(|stored| match known {
            Some((inputs, digest)) if *digest == stored.digest => {
                AppliedInputs { inputs: Some(summaries(inputs)), ..stored }
            }
            _ => stored,
        });
        Ok(CurrentInputs { now: view.as_ref().and_then(|view| view.inputs()), applied })
    }
}
