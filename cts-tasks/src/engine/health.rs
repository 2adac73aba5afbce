//! The health of the reads that tasks need of Consul.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use consul_watch::{
    error_chain,
    watch::{Liveness, Watch, WatchState},
};

use super::dependency::Dependency;

/// Number of failures in a row that upstream bears before it gives a dependency up.
/// This engine never gives up, but reports itself unhealthy from then on.
///
/// Source: Consul-Terraform-Sync 0.9, retries 0 to 8 of a view.
const BEARABLE: u32 = 9;

/// The state of all reads that tasks need of Consul.
///
/// It looks at the watches themselves; one that its task dropped is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Health {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    probes: BTreeMap<u64, Arc<Probe>>,
    /// Number of the last probe.
    last: u64,
    /// The different things that are watched, with the number of their watches.
    watched: HashMap<Arc<Dependency>, usize>,
    load: Load,
}

/// Keeps [`Health`] looking at one watch, until it is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    health: Arc<Health>,
    number: u64,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.health.forget(self.number);
    }
}

/// Tells when many things are watched.
#[derive(Debug, Default)]
struct Load {
    /// With how many it was told last.
    told: usize,
}

/// More than so many are worth a word, and again with each [`MORE`].
///
/// Source: Consul-Terraform-Sync 0.9, monitoring of tasks.
const MANY: usize = 128;
const MORE: usize = 50;

impl Load {
    /// Decides if the log mentions now that there are `watched` different things,
    /// and notes the number if so.
    fn is_worth_a_word(&mut self, watched: usize) -> bool {
        if watched <= MANY {
            self.told = 0;
            return false;
        }
        let worth = self.told == 0 || watched >= self.told + MORE;
        if worth {
            self.told = watched;
        }
        worth
    }
}

/// Looks at one watch.
pub(crate) struct Probe {
    dependency: Arc<Dependency>,
    state: Box<dyn Fn() -> WatchState + Send + Sync>,
}

impl Probe {
    /// Looks at a watch that somebody else polls: with thousands of them, a subscription of
    /// its own would cost megabytes.
    pub(crate) fn of<T: Send + Sync + 'static>(
        dependency: Arc<Dependency>,
        watch: Arc<Mutex<Watch<T>>>,
    ) -> Self {
        let state = move || watch.lock().unwrap_or_else(PoisonError::into_inner).state();
        Self { dependency, state: Box::new(state) }
    }

    /// Describes the problem for a person; `None` if there is none.
    fn complaint(&self) -> Option<String> {
        let state = (self.state)();
        let error = error_chain(state.last_error.as_ref()?.cause());
        let (dependency, times) = (&self.dependency, state.consecutive_failures);
        if state.liveness == Liveness::Ended {
            Some(format!("{dependency} cannot be read: {error}"))
        } else if times >= BEARABLE {
            Some(format!("{dependency} has failed {times} times in a row: {error}"))
        } else {
            None
        }
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("dependency", &self.dependency).finish_non_exhaustive()
    }
}

impl Health {
    /// Looks at this watch too, as long as its owner keeps what is returned.
    pub(crate) fn follow(self: &Arc<Self>, probe: Probe) -> Followed {
        let mut known = self.lock();
        known.last += 1;
        let number = known.last;
        *known.watched.entry(Arc::clone(&probe.dependency)).or_default() += 1;
        known.probes.insert(number, Arc::new(probe));
        let watched = known.watched.len();
        let tell = known.load.is_worth_a_word(watched);
        drop(known);
        if tell {
            tracing::warn!(
                watched,
                "more than {MANY} dependencies are watched, which puts load on Consul; \
                 fewer services per task, or a regexp, need fewer"
            );
        }
        Followed { health: Arc::clone(self), number }
    }

    fn forget(&self, number: u64) {
        let mut known = self.lock();
        let Some(probe) = known.probes.remove(&number) else { return };
        if let Some(watches) = known.watched.get_mut(&probe.dependency) {
            *watches -= 1;
            if *watches == 0 {
                known.watched.remove(&probe.dependency);
            }
        }
        drop(known);
    }

    /// # Errors
    ///
    /// What cannot be read, for a person.
    pub(crate) fn check(&self) -> Result<(), String> {
        // Copied, because each look locks a watch, which its task may hold for long.
        let probes: Vec<_> = self.lock().probes.values().map(Arc::clone).collect();
        probes.iter().find_map(|probe| probe.complaint()).map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_and_closing_watches_looks_at_no_other() {
        let health = Arc::new(Health::default());
        let dependency = Arc::new(Dependency::Instances {
            name: "web".into(),
            datacenter: String::new(),
            namespace: String::new(),
            filter: String::new(),
            passing: true,
        });
        let probe =
            || Probe { dependency: Arc::clone(&dependency), state: Box::new(|| unreachable!()) };
        let followed: Vec<_> = (0..200).map(|_| health.follow(probe())).collect();
        drop(followed);
        assert_eq!(health.check(), Ok(()), "none is left");
        assert!(health.lock().watched.is_empty());
    }

    #[test]
    fn more_than_128_dependencies_are_worth_a_word_now_and_then() {
        let mut load = Load::default();
        let words = |load: &mut Load, range: std::ops::Range<usize>| -> Vec<usize> {
            range.filter(|watched| load.is_worth_a_word(*watched)).collect()
        };
        assert_eq!(words(&mut load, 0..300), [129, 179, 229, 279]);
        assert!(!load.is_worth_a_word(128));
        assert!(load.is_worth_a_word(129), "after it was fewer");
    }
}
