//! Decides what a watch does after each answer and failure: no sockets, no clock.

use std::time::Duration;

use http::StatusCode;

use crate::{
    Backoff, Error, Jitter, QueryMeta,
    query::{Mode, Position},
    watch::limiter::{Limiter, RateLimit},
};

/// A watch's next step after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) publish: Publish,
    pub(super) next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publish {
    Nothing,
    Data,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    After(Duration),
    End,
}

/// The time of an attempt, counted from the watch's start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) started: Duration,
    pub(super) ended: Duration,
    /// Time for which Consul was allowed to hold it.
    pub(super) wait: Duration,
}

impl Timing {
    /// Returns `true` if Consul answered although the time was not over.
    pub(super) fn is_early(self) -> bool {
        // It adds some time at random; clocks differ a little.
        self.ended.saturating_sub(self.started) < self.wait.mul_f64(0.99)
    }
}

/// Settings that decide about a watch's steps besides its query.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) rate_limit: RateLimit,
    pub(super) backoff: Backoff,
    pub(super) poll_interval: Duration,
    pub(super) seed: u64,
}

/// Classes of errors, by what follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Passes by itself: retried soon.
    Transient,
    /// The token may come to be accepted: retried slowly, told once.
    Denied,
    /// A complete answer that makes no sense: retried slowly.
    Unreadable,
    /// No retry can cure it.
    Fatal,
}

/// The part of Consul that answered (`X-Consul-Query-Backend`, Consul 1.10).
///
/// Each counts for itself: for a service that does not exist the streaming backend has the index
/// at which it began to follow it, the other one that of the whole catalog. So indexes are
/// compared only with those of the same backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Direct,
    Streaming,
}

impl Backend {
    fn of(meta: &QueryMeta) -> Self {
        match meta.query_backend.as_deref() {
            Some("streaming") => Self::Streaming,
            _ => Self::Direct,
        }
    }
}

/// Polling is no busier than this, whatever is asked for.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// As good as never.
const LONGEST_INTERVAL: Duration = Duration::from_hours(24 * 365);

fn classify(error: &Error) -> Class {
    match error {
        Error::Status { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. } => {
            Class::Denied
        }
        Error::Decode { .. } => Class::Unreadable,
        _ if error.is_retryable() => Class::Transient,
        // What a proxy says of a server that it cannot reach: 520 to 530, say.
        Error::Status { status, .. }
            if status.is_server_error() && *status != StatusCode::INTERNAL_SERVER_ERROR =>
        {
            Class::Transient
        }
        _ => Class::Fatal,
    }
}

/// The whole behaviour of a watch as a function of what it has seen: no
/// sockets, no clock, no data.
#[derive(Debug)]
pub(super) struct Plan {
    mode: Mode,
    position: Position,
    poll_interval: Duration,
    limiter: Limiter,
    transient: Backoff,
    denied: Backoff,
    unreadable: Backoff,
    failing: Option<Class>,
    /// Backend that gave the position.
    backend: Backend,
    /// The index of the last answer of each backend, also across failures.
    seen: [Option<u64>; 2],
    history: u64,
    doubtful: bool,
    random: fastrand::Rng,
}

impl Plan {
    pub(super) fn new(mode: Mode, settings: &Settings) -> Self {
        // A crowd must not ask for a new token or a repaired answer at once,
        // but these are slow on purpose: the jitter only adds.
        let slow = |from| {
            Backoff::default()
                .with_initial(Duration::from_secs(from))
                .with_jitter(Jitter::Extra(0.5))
                .with_seed(settings.seed)
        };
        Self {
            mode,
            position: Position::Start,
            poll_interval: settings.poll_interval,
            limiter: Limiter::new(settings.rate_limit),
            transient: settings.backoff.clone().with_seed(settings.seed),
            denied: slow(5),
            unreadable: slow(30),
            failing: None,
            backend: Backend::Direct,
            seen: [None; 2],
            history: 1,
            // A follower that lags behind, or a server that was just started, may be the first
            // to answer, and nothing is known yet that it could be compared with.
            doubtful: true,
            random: fastrand::Rng::with_seed(settings.seed),
        }
    }

    /// Returns the position that the next attempt reads from.
    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Consul's history may have been replaced: the next answer's data is
    /// compared, whatever its index.
    pub(super) fn restart(&mut self) {
        self.position = Position::Start;
    }

    /// Counts Consul's histories, from 1: it grows when an index went backwards.
    /// Indexes without an order, those of events, say nothing of that.
    pub(super) fn history(&self) -> u64 {
        self.history
    }

    /// Returns `true` if the next answer must come from a leader that is known to have
    /// caught up: a server that was just started may answer for a moment as if
    /// everything were gone, and whoever acts on that destroys.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// An attempt at [`Plan::position`], or a later one that did not block,
    /// succeeded. `same` says whether the
    /// data equals the last snapshot's, and is asked only when it matters.
    pub(super) fn answered(
        &mut self,
        meta: &QueryMeta,
        timing: Timing,
        same: impl FnOnce() -> bool,
    ) -> Step {
        self.failing = None;
        self.doubtful = false;
        self.transient.reset();
        self.denied.reset();
        self.unreadable.reset();
        let delay = self.limiter.next(timing.started, timing.ended);
        let at = match self.mode {
            Mode::Index | Mode::Event => meta.index.map(Position::Index),
            Mode::Hash => meta.content_hash.clone().map(Position::Hash),
            Mode::Polled(interval) => return self.polled(interval, same),
        };
        let Some(at) = at else {
            // Nothing to block on: a proxy's answer, or an object that is gone.
            self.position = Position::Start;
            return self.polled(self.poll_interval, same);
        };
        let next = Next::After(delay);
        let backend = Backend::of(meta);
        let (mut known, mut replaced) = (false, false);
        if let (Mode::Index, Position::Index(got)) = (self.mode, &at) {
            let before = self.seen.get(backend as usize).copied().flatten();
            (known, replaced) = (before.is_some(), before.is_some_and(|before| *got < before));
            if replaced {
                self.history += 1;
                // The other backend's index was of the old history, too.
                self.seen = [None; 2];
            }
            if let Some(seen) = self.seen.get_mut(backend as usize) {
                *seen = Some(*got);
            }
        }
        let other = backend != std::mem::replace(&mut self.backend, backend);
        if at == self.position {
            // A server that restores a backup lets go of all that wait, with the
            // old index, which the new history may not reach for long.
            let mut publish = Publish::Nothing;
            if self.mode == Mode::Index && timing.is_early() {
                self.position = Position::Start;
                self.doubtful = true;
            } else if self.mode == Mode::Index && !same() {
                // A new history has reached the old one's index between two requests.
                publish = Publish::Data;
            }
            return Step { publish, next };
        }
        if let (Mode::Index, Position::Index(sent), Position::Index(got)) =
            (self.mode, &self.position, &at)
            && got < sent
        {
            // At its time limit the streaming backend tells where it stands, which may be below
            // what the other one said: no new history, and a place to go on from.
            if other && known && !replaced && !timing.is_early() && same() {
                self.position = at;
                return Step { publish: Publish::Nothing, next };
            }
            // Consul's history was replaced. What it is now is asked without
            // blocking, because nothing says that this answer is current.
            self.position = Position::Start;
            self.doubtful = true;
            return Step { publish: Publish::Nothing, next };
        }
        self.position = at;
        let publish = if same() { Publish::Nothing } else { Publish::Data };
        Step { publish, next }
    }

    /// An attempt failed. `retry_after` is what a proxy asked for.
    pub(super) fn failed(&mut self, error: &Error) -> Step {
        // A server that comes back may have a lower index and would let the
        // watch hang for the whole wait.
        self.position = Position::Start;
        let class = classify(error);
        // A server that refuses a token is up, and knows what it holds.
        self.doubtful |= class != Class::Denied;
        let before = self.failing.replace(class);
        let delay = match class {
            Class::Fatal => {
                return Step { publish: Publish::Error, next: Next::End };
            }
            Class::Transient => self.transient.next_delay(),
            Class::Denied => self.denied.next_delay(),
            Class::Unreadable => self.unreadable.next_delay(),
        };
        let publish = if class == Class::Denied && before == Some(Class::Denied) {
            Publish::Nothing
        } else {
            Publish::Error
        };
        let delay = delay.max(error.retry_after().unwrap_or_default());
        Step { publish, next: Next::After(delay) }
    }

    fn polled(&mut self, interval: Duration, same: impl FnOnce() -> bool) -> Step {
        let spread = 0.9 + 0.2 * self.random.f64();
        let interval = interval.clamp(LEAST_INTERVAL, LONGEST_INTERVAL);
        let publish = if same() { Publish::Nothing } else { Publish::Data };
        Step { publish, next: Next::After(interval.mul_f64(spread)) }
    }
}

#[cfg(test)]
mod tests;
