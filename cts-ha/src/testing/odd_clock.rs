//! A clock that runs slow or jumps, for tests of leases.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use consul_watch::Clock;
use futures::future::BoxFuture;

/// [`Clock`] that runs slow, or was suspended, for tests of leases.
///
/// Clones are the same clock.
#[derive(Debug, Clone)]
pub struct OddClock {
    base: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Reading of the base clock when the rate was last set, and our own at that moment.
    base: Duration,
    shown: Duration,
    rate: f64,
}

impl OddClock {
    /// Creates a clock that shows the time of `base` until it is changed.
    pub fn new(base: Arc<dyn Clock>) -> Self {
        let now = base.monotonic();
        let state = State { base: now, shown: now, rate: 1.0 };
        Self { base, state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the rate from now on: at 0.5 it shows one second for every two. Rates that are not
    /// positive numbers count as 1.
    pub fn set_rate(&self, rate: f64) {
        let mut state = self.state();
        let now = self.base.monotonic();
        state.shown = state.at(now);
        state.base = now;
        state.rate = if rate.is_finite() && rate > 0.0 { rate } else { 1.0 };
    }

    /// Jumps ahead, as the machine's clock does in a suspend. Running timers do not notice.
    pub fn jump(&self, ahead: Duration) {
        self.state().shown += ahead;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn at(&self, base: Duration) -> Duration {
        self.shown + base.saturating_sub(self.base).mul_f64(self.rate)
    }
}

impl Clock for OddClock {
    fn now(&self) -> SystemTime {
        self.base.now()
    }

    fn monotonic(&self) -> Duration {
        self.state().at(self.base.monotonic())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let rate = self.state().rate;
        self.base
            .sleep(Duration::try_from_secs_f64(duration.as_secs_f64() / rate).unwrap_or(duration))
    }
}
