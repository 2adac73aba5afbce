use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::catalog::Changes;
use crate::{Error, query::Scope};

/// What a covered watch is told to do.
#[derive(Debug, Clone)]
pub(crate) enum Signal {
    /// Read again.
    Read {
        /// Compare the data although the index is the same: Consul's history
        /// may be another one.
        compare: bool,
    },
    /// The broad query failed, for this reason: nothing tells of changes any more.
    Failed(Arc<Error>),
}

/// Where a covered watch waits to be told.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    signal: Option<Signal>,
    /// When the signal that waits, or that is being obeyed, came first.
    told: Option<Instant>,
    /// The index of the last read.
    index: u64,
    reading: bool,
}

impl Ticket {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a signal and takes it.
    pub(crate) async fn signal(&self) -> Signal {
        loop {
            let signal = self.state().signal.take();
            if let Some(signal) = signal {
                return signal;
            }
            self.told.notified().await;
        }
    }

    /// Drops the signal that waits, because the watch reads anyway.
    pub(crate) fn clear(&self) {
        self.state().signal = None;
    }

    /// A read begins: whatever signal comes from now on asks for another one.
    pub(crate) fn begin(&self) {
        self.state().reading = true;
    }

    /// The read ended, with this index if it succeeded.
    pub(crate) fn end(&self, index: Option<u64>) {
        let mut state = self.state();
        state.reading = false;
        if state.signal.is_none() {
            state.told = None;
        }
        if let Some(index) = index {
            state.index = index;
        }
    }

    /// How long the watch has been told of what it has not yet shown.
    pub(crate) fn told_for(&self) -> Option<Duration> {
        self.state().told.map(|told| told.elapsed())
    }

    fn tell(&self, signal: Signal) {
        let mut state = self.state();
        state.told.get_or_insert_with(Instant::now);
        state.signal = Some(match (&state.signal, signal) {
            (Some(Signal::Read { compare: true } | Signal::Failed(_)), Signal::Read { .. }) => {
                Signal::Read { compare: true }
            }
            (_, signal) => signal,
        });
        drop(state);
        self.told.notify_one();
    }

    fn is_past(&self, index: u64) -> bool {
        let state = self.state();
        state.reading || state.index > index
    }
}

/// The watches that a group of broad queries stands in for.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: HashMap<u64, (Scope, Arc<Ticket>)>,
    services: HashMap<String, HashMap<u64, Arc<Ticket>>>,
    joined: u64,
    /// A change from now on will be told.
    settled: bool,
    failing: bool,
}

/// Consul finds services whatever the case of their letters.
fn folded(name: &str) -> String {
    name.to_lowercase()
}

impl Members {
    /// Adds a watch. It is told to read at once if changes after that will be
    /// told, else when this is so.
    pub(super) fn join(&mut self, scope: &Scope) -> (u64, Arc<Ticket>) {
        self.joined += 1;
        let ticket = Arc::new(Ticket::default());
        if self.settled || self.failing {
            ticket.tell(Signal::Read { compare: true });
        }
        if let Scope::Service(name) = scope {
            let of_service = self.services.entry(folded(name)).or_default();
            of_service.insert(self.joined, Arc::clone(&ticket));
        }
        self.all.insert(self.joined, (scope.clone(), Arc::clone(&ticket)));
        (self.joined, ticket)
    }

    /// Removes a watch; says whether it was the last.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        if let Some((Scope::Service(name), _ticket)) = self.all.remove(&number) {
            let name = folded(&name);
            if let Some(of_service) = self.services.get_mut(&name) {
                of_service.remove(&number);
                if of_service.is_empty() {
                    self.services.remove(&name);
                }
            }
        }
        self.all.is_empty()
    }

    /// How many services are watched.
    pub(super) fn service_count(&self) -> usize {
        self.services.len()
    }

    /// All broad queries have answered: all read, and hear of changes from then on.
    pub(super) fn settle(&mut self) {
        (self.settled, self.failing) = (true, false);
        self.tell_all(&Signal::Read { compare: true });
    }

    /// A broad query lost its place, so changes may go untold until the next
    /// [`Members::settle`].
    pub(super) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// A broad query failed. The first failure is passed on, so that a watch
    /// shows it as if its own request had failed; at further ones the watches
    /// see for themselves.
    pub(super) fn fail(&mut self, error: Error) {
        let first = !std::mem::replace(&mut self.failing, true);
        self.settled = false;
        if first && error.is_retryable() {
            self.tell_all(&Signal::Failed(Arc::new(error)));
        } else {
            self.tell_all(&Signal::Read { compare: true });
        }
    }

    /// Tells all whose scope is one of those.
    pub(super) fn moved(&self, concerns: impl Fn(&Scope) -> bool) {
        for (_scope, ticket) in self.all.values().filter(|(scope, _ticket)| concerns(scope)) {
            ticket.tell(Signal::Read { compare: false });
        }
    }

    /// Tells the watches of services that may have changed.
    pub(super) fn changed(&self, changes: &Changes) {
        if changes.all {
            return self.moved(|scope| matches!(scope, Scope::Service(_)));
        }
        for name in &changes.services {
            for ticket in self.services.get(&folded(name)).into_iter().flat_map(HashMap::values) {
                ticket.tell(Signal::Read { compare: false });
            }
        }
        let Some(past) = changes.past else { return };
        for ticket in self.services.values().flat_map(HashMap::values) {
            if ticket.is_past(past) {
                ticket.tell(Signal::Read { compare: false });
            }
        }
    }

    fn tell_all(&self, signal: &Signal) {
        for (_scope, ticket) in self.all.values() {
            ticket.tell(signal.clone());
        }
    }
}
