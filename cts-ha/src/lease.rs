//! A hold that ends by this machine's own clock, whatever network and scheduler do.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use consul_watch::Clock;
use tokio_util::sync::CancellationToken;

/// Reason why a lock, slot, session or leadership is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// By our own clock the last renewal is too old.
    LeaseExpired,
    /// Consul ended the session.
    SessionEnded,
    /// The key was deleted, or another session holds it.
    Taken,
    /// The key could not be read for too long.
    Unwatched,
    /// Consul refused a write, because the session does not hold the lock.
    Refused,
    /// It was released on purpose.
    Resigned,
    /// Nothing renews or watches it any more: the task that did panicked, or its runtime was shut
    /// down.
    Abandoned,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseExpired => "the lease expired without a renewal",
            Self::SessionEnded => "the session has ended",
            Self::Taken => "the lock was deleted or taken",
            Self::Unwatched => "the lock could not be watched",
            Self::Refused => "Consul refused a write of this session",
            Self::Resigned => "it was given up",
            Self::Abandoned => "nothing renews it any more",
        })
    }
}

/// Hold that lasts until a deadline, which renewals postpone.
///
/// A clock of this machine that counts suspend decides whether it is still held, so that no network
/// and no scheduler can make the answer come too late. Once it has ended it never begins again.
/// Clones are the same lease.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use consul_watch::SystemClock;
/// use cts_ha::{Lease, Loss};
///
/// let lease = Lease::new(Arc::new(SystemClock), Duration::from_secs(12));
/// assert!(lease.check().is_ok());
/// lease.end(Loss::Resigned);
/// assert_eq!(lease.check(), Err(Loss::Resigned));
/// ```
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    /// Deadline by [`Clock::monotonic`]; `None` for never.
    deadline: Mutex<Option<Duration>>,
    ended: CancellationToken,
    loss: OnceLock<Loss>,
}

/// Number of clock checks during the rest of a lease, at least: a timer that does not count suspend
/// must not be what ends it.
const LOOKS: u32 = 8;

impl Lease {
    /// Creates a lease that ends `length` from now unless it is renewed.
    pub fn new(clock: Arc<dyn Clock>, length: Duration) -> Self {
        let start = clock.monotonic();
        Self::since(clock, start, length)
    }

    /// Creates a lease that ends `length` after `start` on the clock's monotonic time.
    pub fn since(clock: Arc<dyn Clock>, start: Duration, length: Duration) -> Self {
        Self::until(clock, Some(start.saturating_add(length)))
    }

    /// Creates a lease that no clock ends, for a session that the caller renews.
    pub fn unbounded(clock: Arc<dyn Clock>) -> Self {
        Self::until(clock, None)
    }

    fn until(clock: Arc<dyn Clock>, deadline: Option<Duration>) -> Self {
        let inner = Inner {
            clock,
            deadline: Mutex::new(deadline),
            ended: CancellationToken::new(),
            loss: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Checks that it is held now. Does not wait.
    ///
    /// # Errors
    ///
    /// The reason why it is not.
    pub fn check(&self) -> Result<(), Loss> {
        if let Some(loss) = self.inner.loss.get() {
            return Err(*loss);
        }
        // The caller may be the first to notice: no timer has to have run.
        if self.remaining() == Some(Duration::ZERO) {
            return Err(self.end(Loss::LeaseExpired));
        }
        Ok(())
    }

    /// Postpones the end to `length` after `start`, the time at which the renewal was *begun*.
    /// Returns `false`, and changes nothing, if the lease has already ended.
    pub fn renew(&self, start: Duration, length: Duration) -> bool {
        // A renewal whose answer comes after the end is too late, even if Consul accepted it.
        if self.check().is_err() {
            return false;
        }
        let mut deadline = self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = Some(start.saturating_add(length));
        true
    }

    /// Ends it. The first reason stays, and is returned.
    pub fn end(&self, loss: Loss) -> Loss {
        let loss = *self.inner.loss.get_or_init(|| loss);
        self.inner.ended.cancel();
        loss
    }

    /// Returns the reason of its end, if it has ended and somebody noticed.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.loss.get().copied()
    }

    /// Returns the time at which it ends by [`Clock::monotonic`] without another renewal; `None`
    /// for never.
    pub fn deadline(&self) -> Option<Duration> {
        *self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time that it lasts without another renewal; `None` for ever.
    pub fn remaining(&self) -> Option<Duration> {
        Some(self.deadline()?.saturating_sub(self.inner.clock.monotonic()))
    }

    /// Returns the time since the last renewal was begun, for a lease of this length; zero without
    /// a deadline.
    pub(crate) fn age(&self, length: Duration) -> Duration {
        self.remaining().map_or(Duration::ZERO, |left| length.saturating_sub(left))
    }

    /// Returns the time since its deadline has passed; zero before.
    pub(crate) fn overdue(&self) -> Duration {
        let deadline = self.deadline().unwrap_or(Duration::MAX);
        self.inner.clock.monotonic().saturating_sub(deadline)
    }

    /// Returns a token that is cancelled when it ends.
    pub fn ended(&self) -> &CancellationToken {
        &self.inner.ended
    }

    /// Ends it at its deadline, and returns when it has ended in any way.
    pub async fn watch(&self) -> Loss {
        loop {
            if let Err(loss) = self.check() {
                return loss;
            }
            let Some(left) = self.remaining() else {
                self.inner.ended.cancelled().await;
                continue;
            };
            // Several sleeps instead of one: a suspend stops timers, but not this clock.
            let look = (left / LOOKS).max(Duration::from_millis(10));
            tokio::select! {
                () = self.inner.clock.sleep(look.min(left)) => {}
                () = self.inner.ended.cancelled() => {}
            }
        }
    }
}

/// Guard that ends a lease together with the task that keeps it, however that ends.
pub(crate) struct EndsOnDrop(pub(crate) Lease);

impl Drop for EndsOnDrop {
    fn drop(&mut self) {
        self.0.end(Loss::Abandoned);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("remaining", &self.remaining())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}
