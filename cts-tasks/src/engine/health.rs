use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::want::Want;
use crate::TaskName;

/// How many failures in a row upstream bears before it gives a dependency up.
/// Ours never gives up, but says from then on that it is not healthy.
///
/// Source: Consul-Terraform-Sync 0.9, retries 0 to 8 of a view.
const BEARABLE: u32 = 9;

/// Which reads of Consul fail, and how often in a row.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<Failures>,
}

/// Each task's own, so that what only a deleted task wanted goes with it.
type Failures = BTreeMap<TaskName, BTreeMap<Want, Failing>>;

#[derive(Debug)]
struct Failing {
    times: u32,
    error: String,
}

impl Health {
    /// Returns whether it failed before, and fails for no task any more.
    pub(crate) fn answered(&self, task: &TaskName, want: &Want) -> bool {
        let mut failures = self.lock();
        let failed = failures.get_mut(task).is_some_and(|failing| failing.remove(want).is_some());
        failed && !failures.values().any(|failing| failing.contains_key(want))
    }

    /// The task wants nothing but this now.
    pub(crate) fn keep(&self, task: &TaskName, wants: &BTreeSet<Want>) {
        if let Some(failing) = self.lock().get_mut(task) {
            failing.retain(|want, _| wants.contains(want));
        }
    }

    /// The task is no more.
    pub(crate) fn forget(&self, task: &TaskName) {
        self.lock().remove(task);
    }

    /// A fatal failure is not borne at all. Returns whether it is news: the
    /// read did not fail for any task before.
    pub(crate) fn failed(&self, task: &TaskName, want: &Want, error: String, fatal: bool) -> bool {
        let mut failures = self.lock();
        let news = !failures.values().any(|failing| failing.contains_key(want));
        let failing = failures.entry(task.clone()).or_default();
        let entry =
            failing.entry(want.clone()).or_insert(Failing { times: 0, error: String::new() });
        entry.times = if fatal { BEARABLE } else { entry.times.saturating_add(1) };
        entry.error = error;
        news || fatal
    }

    /// # Errors
    ///
    /// What fails, for a person.
    pub(crate) fn check(&self) -> Result<(), String> {
        let failing = self.lock();
        let mut all = failing.values().flatten();
        let worst = all.find(|(_, failing)| failing.times >= BEARABLE);
        match worst {
            None => Ok(()),
            Some((want, Failing { times, error })) => {
                Err(format!("{want} has failed {times} times in a row: {error}"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_failures_in_a_row_are_unhealthy_and_one_answer_heals() {
        let want =
            Want::Key { path: "a".into(), datacenter: String::new(), namespace: String::new() };
        let (health, task) = (Health::default(), "t".parse().unwrap());
        for _ in 0..8 {
            health.failed(&task, &want, "refused".into(), false);
        }
        assert_eq!(health.check(), Ok(()));
        health.failed(&task, &want, "refused".into(), false);
        let said = health.check().unwrap_err();
        assert_eq!(said, "kv.exists.get(a) has failed 9 times in a row: refused");
        health.answered(&task, &want);
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn a_read_that_no_retry_cures_is_unhealthy_at_once() {
        let want =
            Want::Key { path: "a".into(), datacenter: String::new(), namespace: String::new() };
        let (health, task) = (Health::default(), "t".parse().unwrap());
        health.failed(&task, &want, "bad filter".into(), true);
        assert!(health.check().is_err());
    }

    #[test]
    fn what_only_a_deleted_task_wanted_is_forgotten() {
        let want =
            Want::Key { path: "a".into(), datacenter: String::new(), namespace: String::new() };
        let (health, task) = (Health::default(), "t".parse().unwrap());
        health.failed(&task, &want, "bad filter".into(), true);
        health.keep(&task, &BTreeSet::from([want.clone()]));
        assert!(health.check().is_err());
        health.keep(&task, &BTreeSet::new());
        assert_eq!(health.check(), Ok(()));
        health.failed(&task, &want, "bad filter".into(), true);
        health.forget(&task);
        assert_eq!(health.check(), Ok(()));
    }
}
