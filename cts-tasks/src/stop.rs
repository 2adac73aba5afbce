//! The signal that ends work: why it has to end, and how soon.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;

/// Why a running step must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The process is asked to end.
    Shutdown,
    /// Another process leads now; what this one does outside may collide with it.
    LeadershipLost,
    /// The task was deleted.
    TaskDeleted,
    /// The task was disabled, or has another definition now.
    TaskChanged,
    /// The step took longer than it may.
    TimeLimit,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shutdown => "shutting down",
            Self::LeadershipLost => "leadership was lost",
            Self::TaskDeleted => "the task was deleted",
            Self::TaskChanged => "the task was changed",
            Self::TimeLimit => "the time limit was reached",
        })
    }
}

/// A stop signal that says why, and that can be made urgent. Clones share it.
///
/// The signal asks work to wind up: a driver interrupts its tool once and waits
/// for the resource that the tool is at. [`Stop::stop_now`] asks for the end at
/// once, whatever that leaves behind.
///
/// ```
/// use cts_tasks::{Stop, StopReason};
///
/// let stop = Stop::new();
/// stop.stop(StopReason::Shutdown);
/// stop.stop(StopReason::TimeLimit); // the first reason stays
/// assert_eq!(stop.reason(), Some(StopReason::Shutdown));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    urgent: CancellationToken,
    chain: Vec<Arc<OnceLock<StopReason>>>,
}

impl Stop {
    /// A signal that has not been given.
    pub fn new() -> Self {
        Self {
            token: CancellationToken::new(),
            urgent: CancellationToken::new(),
            chain: vec![Arc::default()],
        }
    }

    /// A signal that is given when this one is, and can also be given alone.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut chain = vec![Arc::default()];
        chain.extend(self.chain.iter().map(Arc::clone));
        Self { token: self.token.child_token(), urgent: self.urgent.child_token(), chain }
    }

    /// Gives the signal. The first reason stays.
    pub fn stop(&self, reason: StopReason) {
        if let Some(own) = self.chain.first() {
            own.get_or_init(|| reason);
        }
        self.token.cancel();
    }

    /// Gives the signal if it was not given, and ends the time for winding up:
    /// what still runs has to end at once, and is killed if need be.
    ///
    /// ```
    /// use cts_tasks::{Stop, StopReason};
    ///
    /// let stop = Stop::new();
    /// let inner = stop.child();
    /// stop.stop(StopReason::Shutdown);
    /// assert!(!inner.is_urgent());
    /// stop.stop_now(StopReason::TimeLimit);
    /// assert!(inner.is_urgent());
    /// assert_eq!(inner.reason(), Some(StopReason::Shutdown));
    /// ```
    pub fn stop_now(&self, reason: StopReason) {
        self.stop(reason);
        self.urgent.cancel();
    }

    /// Returns `true` once the time for winding up is over.
    pub fn is_urgent(&self) -> bool {
        self.urgent.is_cancelled()
    }

    /// Waits until the time for winding up is over, which it may never be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn urgent(&self) {
        self.urgent.cancelled().await;
    }

    /// The reason, once the signal was given.
    pub fn reason(&self) -> Option<StopReason> {
        if !self.token.is_cancelled() {
            return None;
        }
        self.chain.iter().find_map(|reason| reason.get().copied())
    }

    /// Ends a step of a driver with `?`, once the signal was given.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Stopped`] with the reason.
    pub fn check(&self) -> crate::Result<()> {
        self.reason().map_or(Ok(()), |reason| Err(crate::Error::Stopped { reason }))
    }

    /// Waits for the signal and returns its reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn stopped(&self) -> StopReason {
        self.token.cancelled().await;
        self.reason().unwrap_or(StopReason::Shutdown)
    }

    /// The token below, for code that needs no reason.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}
