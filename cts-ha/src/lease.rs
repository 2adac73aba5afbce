use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use consul_watch::Clock;
use tokio_util::sync::CancellationToken;

/// Why something is held no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// By our own clock the session has gone too long without a renewal.
    LeaseExpired,
    /// Consul has ended the session.
    SessionEnded,
    /// The key was deleted, or another session holds it.
    Taken,
    /// The key could not be read for too long.
    Unwatched,
    /// Consul refused a write because the session does not hold the lock.
    Refused,
    /// It was given up on purpose.
    Resigned,
    /// Nothing renews or watches it any more: the task that did has panicked, or
    /// its runtime was shut down.
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

/// What is held until a point of time that renewals put off.
///
/// Whether it is still held is decided by a clock of this machine that counts
/// suspend, so no network and no scheduler can make the answer come too late.
/// Once it has ended it never begins again. Clones are the same lease.
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
    /// By [`Clock::monotonic`]; `None` is never.
    deadline: Mutex<Option<Duration>>,
    ended: CancellationToken,
    loss: OnceLock<Loss>,
}

/// How often a holder looks at its clock, at least: a timer that does not
/// count suspend must not be what ends a lease.
const LOOKS: u32 = 8;

impl Lease {
    /// A lease that ends `length` from now unless it is renewed.
    pub fn new(clock: Arc<dyn Clock>, length: Duration) -> Self {
        let start = clock.monotonic();
        Self::since(clock, start, length)
    }

    /// A lease that ends `length` after `start` on the clock's monotonic time.
    pub fn since(clock: Arc<dyn Clock>, start: Duration, length: Duration) -> Self {
        Self::until(clock, Some(start.saturating_add(length)))
    }

    /// A lease that no clock ends, for a session that somebody else renews.
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

    /// Whether it is held now. Waits for nothing.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn check(&self) -> Result<(), Loss> {
        if let Some(loss) = self.inner.loss.get() {
            return Err(*loss);
        }
        if self.remaining() == Some(Duration::ZERO) {
            return Err(self.end(Loss::LeaseExpired));
        }
        Ok(())
    }

    /// Puts the end off to `length` after `start`, which is when the renewal
    /// was *begun*. `false`, and nothing else, when it has ended already.
    pub fn renew(&self, start: Duration, length: Duration) -> bool {
        if self.check().is_err() {
            return false;
        }
        let mut deadline = self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = Some(start.saturating_add(length));
        true
    }

    /// Ends it; the first reason stays, and is returned.
    pub fn end(&self, loss: Loss) -> Loss {
        let loss = *self.inner.loss.get_or_init(|| loss);
        self.inner.ended.cancel();
        loss
    }

    /// Why it has ended, if it has and somebody noticed.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.loss.get().copied()
    }

    /// When it ends by [`Clock::monotonic`] without another renewal; `None` is never.
    pub fn deadline(&self) -> Option<Duration> {
        *self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it lasts without another renewal; `None` is for ever.
    pub fn remaining(&self) -> Option<Duration> {
        Some(self.deadline()?.saturating_sub(self.inner.clock.monotonic()))
    }

    /// Time since the last renewal was begun, for a lease of this length; zero without
    /// a deadline.
    pub(crate) fn age(&self, length: Duration) -> Duration {
        self.remaining().map_or(Duration::ZERO, |left| length.saturating_sub(left))
    }

    /// How long ago its time has come; zero before.
    pub(crate) fn overdue(&self) -> Duration {
        let deadline = self.deadline().unwrap_or(Duration::MAX);
        self.inner.clock.monotonic().saturating_sub(deadline)
    }

    /// Cancelled when it ends.
    pub fn ended(&self) -> &CancellationToken {
        &self.inner.ended
    }

    /// Ends it when its time has come, and returns when it has ended in any way.
    pub async fn watch(&self) -> Loss {
        loop {
            if let Err(loss) = self.check() {
                return loss;
            }
            let Some(left) = self.remaining() else {
                self.inner.ended.cancelled().await;
                continue;
            };
            let look = (left / LOOKS).max(Duration::from_millis(10));
            tokio::select! {
                () = self.inner.clock.sleep(look.min(left)) => {}
                () = self.inner.ended.cancelled() => {}
            }
        }
    }
}

/// Ends a lease with the task that keeps it, however that comes to its end.
pub(crate) struct Kept(pub(crate) Lease);

impl Drop for Kept {
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
