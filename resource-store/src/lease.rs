//! Leases: what says whether this process runs what only one of several may run.

use std::{fmt, future::pending};

use futures::{StreamExt as _, stream, stream::BoxStream};
use tokio::{sync::watch, time::Instant};

/// Says whether controllers run here now.
///
/// Bind it to whatever elects one of several processes. Nothing keeps a process
/// that lost its lease from finishing what it does at that moment: uids and
/// versions in writes keep that safe.
pub trait Lease: fmt::Debug + Send + Sync + 'static {
    /// Yields whether the lease is held: now, and then at each change. When the
    /// stream ends, the last value stays.
    fn held(&self) -> BoxStream<'static, bool>;
}

/// A lease that is always held.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysHeld;

impl Lease for AlwaysHeld {
    fn held(&self) -> BoxStream<'static, bool> {
        stream::iter([true]).boxed()
    }
}

/// A lease that the program itself gives and takes, e.g. as it becomes a leader
/// and ceases to be one. A clone is another handle to the same lease.
#[derive(Debug, Clone)]
pub struct Leadership {
    held: watch::Sender<Held>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Not,
    /// Until this moment, whether anybody still says so or not.
    #[cfg_attr(not(feature = "raft"), expect(dead_code, reason = "of the Raft backend"))]
    Until(Instant),
    Always,
}

impl Held {
    fn now(self) -> bool {
        match self {
            Self::Not => false,
            Self::Until(end) => Instant::now() < end,
            Self::Always => true,
        }
    }

    /// Waits until time alone ends it.
    async fn over(self) {
        match self {
            Self::Until(end) if Instant::now() < end => tokio::time::sleep_until(end).await,
            Self::Not | Self::Until(_) | Self::Always => pending().await,
        }
    }
}

impl Default for Leadership {
    /// Not held.
    fn default() -> Self {
        Self { held: watch::Sender::new(Held::Not) }
    }
}

impl Leadership {
    /// Returns `true` if it is held now.
    pub fn is_held(&self) -> bool {
        self.held.borrow().now()
    }

    /// Gives or takes the lease. Never waits; the last call counts.
    pub fn set(&self, held: bool) {
        self.held.send_replace(if held { Held::Always } else { Held::Not });
    }

    /// Gives the lease until a moment, at which it ends by itself.
    #[cfg(feature = "raft")]
    pub(crate) fn hold_until(&self, end: Instant) {
        self.held.send_replace(Held::Until(end));
    }
}

impl Lease for Leadership {
    fn held(&self) -> BoxStream<'static, bool> {
        let changes = (self.held.subscribe(), None);
        let next = |(mut held, told): (watch::Receiver<Held>, Option<bool>)| async move {
            loop {
                let state = *held.borrow_and_update();
                let now = state.now();
                // Renewals change the end of the lease and are no news.
                if told != Some(now) {
                    return Some((now, (held, Some(now))));
                }
                tokio::select! {
                    changed = held.changed() => if changed.is_err() {
                        // Nobody gives or takes it any more, but it may still end.
                        if !matches!(state, Held::Until(_)) || !now {
                            return None;
                        }
                        state.over().await;
                    },
                    () = state.over() => {}
                }
            }
        };
        stream::unfold(changes, next).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_listens_hears_of_each_change_and_of_the_end() {
        let leadership = Leadership::default();
        let mut held = leadership.held();
        assert_eq!(held.next().await, Some(false));
        assert!(held.next().now_or_never().is_none());
        leadership.set(true);
        assert_eq!(held.next().await, Some(true));
        leadership.set(false);
        assert_eq!(held.next().await, Some(false));
        drop(leadership);
        assert_eq!(held.next().await, None);
    }

    #[cfg(feature = "raft")]
    #[tokio::test(start_paused = true)]
    async fn what_is_given_until_a_moment_ends_then() {
        let (leadership, begin) = (Leadership::default(), Instant::now());
        let mut held = leadership.held();
        assert_eq!(held.next().await, Some(false));
        let second = Duration::from_secs(1);
        leadership.hold_until(begin + second);
        assert_eq!(held.next().await, Some(true));
        leadership.hold_until(begin + second * 2);
        assert_eq!(held.next().await, Some(false));
        assert_eq!(begin.elapsed(), second * 2);
        assert!(!leadership.is_held());
        leadership.hold_until(Instant::now() + second);
        assert!(leadership.is_held());
        assert_eq!(held.next().await, Some(true));
        drop(leadership);
        assert_eq!(held.next().await, Some(false));
        assert_eq!(begin.elapsed(), second * 3);
        assert_eq!(held.next().await, None);
    }
}
