use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::want::Want;

/// How many failures in a row upstream bears before it gives a dependency up.
/// Ours never gives up, but says from then on that it is not healthy.
///
/// Source: Consul-Terraform-Sync 0.9, retries 0 to 8 of a view.
const BEARABLE: u32 = 9;

/// Which reads of Consul fail, and how often in a row.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<BTreeMap<Want, Failing>>,
}

#[derive(Debug)]
struct Failing {
    times: u32,
    error: String,
}

impl Health {
    pub(crate) fn answered(&self, want: &Want) {
        self.lock().remove(want);
    }

    /// A fatal failure is not borne at all.
    pub(crate) fn failed(&self, want: &Want, error: String, fatal: bool) {
        let mut failing = self.lock();
        let entry =
            failing.entry(want.clone()).or_insert(Failing { times: 0, error: String::new() });
        entry.times = if fatal { BEARABLE } else { entry.times.saturating_add(1) };
        entry.error = error;
    }

    /// # Errors
    ///
    /// What fails, for a person.
    pub(crate) fn check(&self) -> Result<(), String> {
        let failing = self.lock();
        let worst = failing.iter().find(|(_, failing)| failing.times >= BEARABLE);
        match worst {
            None => Ok(()),
            Some((want, Failing { times, error })) => {
                Err(format!("{want} has failed {times} times in a row: {error}"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Want, Failing>> {
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
        let health = Health::default();
        for _ in 0..8 {
            health.failed(&want, "refused".into(), false);
        }
        assert_eq!(health.check(), Ok(()));
        health.failed(&want, "refused".into(), false);
        let said = health.check().unwrap_err();
        assert_eq!(said, "kv.exists.get(a) has failed 9 times in a row: refused");
        health.answered(&want);
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn a_read_that_no_retry_cures_is_unhealthy_at_once() {
        let want =
            Want::Key { path: "a".into(), datacenter: String::new(), namespace: String::new() };
        let health = Health::default();
        health.failed(&want, "bad filter".into(), true);
        assert!(health.check().is_err());
    }
}
