//! `Clock`: the wall-clock time, which tests can set.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;

/// The time of day, and waits for it to pass.
///
/// Code that compares dates, expiry times or leases takes a clock, so that a
/// test can drive it. Plain timeouts use the runtime's timers directly.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Wall-clock time: can jump in both directions.
    fn now(&self) -> SystemTime;

    /// Time since an arbitrary start: never goes backwards, and goes on while
    /// the machine is suspended. Leases are measured with it.
    fn monotonic(&self) -> Duration;

    /// Waits. Dropping the future stops waiting.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's own clocks, and tokio's timer for [`Clock::sleep`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        boot_time()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    // A kernel without CLOCK_BOOTTIME (before 2.6.39) does not run this program.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// On other systems the monotonic clock is what there is; on macOS it counts suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_goes_forward() {
        let clock = SystemClock;
        let first = clock.monotonic();
        assert!(first > Duration::ZERO);
        assert!(clock.monotonic() >= first);
        assert!(clock.now() > SystemTime::UNIX_EPOCH);
    }
}
