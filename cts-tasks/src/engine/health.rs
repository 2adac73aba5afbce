use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use consul_watch::{
    error_chain,
    watch::{Liveness, Watch, WatchState},
};

use super::want::Want;

/// How many failures in a row upstream bears before it gives a dependency up.
/// Ours never gives up, but says from then on that it is not healthy.
///
/// Source: Consul-Terraform-Sync 0.9, retries 0 to 8 of a view.
const BEARABLE: u32 = 9;

/// Whether what tasks need of Consul can be read.
///
/// It looks at the watches themselves; one that its task dropped is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Health {
    probes: Mutex<Vec<Weak<Probe>>>,
}

/// Looks at one watch.
pub(crate) struct Probe {
    want: Want,
    state: Box<dyn Fn() -> WatchState + Send + Sync>,
}

impl Probe {
    pub(crate) fn of<T: Send + Sync + 'static>(want: Want, watch: &Watch<T>) -> Arc<Self> {
        let watch = Mutex::new(watch.clone());
        let state = move || watch.lock().unwrap_or_else(PoisonError::into_inner).state();
        Arc::new(Self { want, state: Box::new(state) })
    }

    /// What is wrong, for a person.
    fn complaint(&self) -> Option<String> {
        let state = (self.state)();
        let error = error_chain(state.last_error.as_ref()?.cause());
        let (want, times) = (&self.want, state.consecutive_failures);
        if state.liveness == Liveness::Ended {
            Some(format!("{want} cannot be read: {error}"))
        } else if times >= BEARABLE {
            Some(format!("{want} has failed {times} times in a row: {error}"))
        } else {
            None
        }
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("want", &self.want).finish_non_exhaustive()
    }
}

impl Health {
    /// Looks at this watch too, as long as its owner keeps the probe.
    pub(crate) fn follow(&self, probe: &Arc<Probe>) {
        let mut probes = self.lock();
        probes.retain(|probe| probe.strong_count() > 0);
        probes.push(Arc::downgrade(probe));
    }

    /// # Errors
    ///
    /// What cannot be read, for a person.
    pub(crate) fn check(&self) -> Result<(), String> {
        let probes: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        probes.iter().find_map(|probe| probe.complaint()).map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Probe>>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
