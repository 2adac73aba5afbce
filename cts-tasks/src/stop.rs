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

/// A stop signal that says why. Clones share the signal.
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
    chain: Vec<Arc<OnceLock<StopReason>>>,
}

impl Stop {
    /// A signal that has not been given.
    pub fn new() -> Self {
        Self { token: CancellationToken::new(), chain: vec![Arc::default()] }
    }

    /// A signal that is given when this one is, and can also be given alone.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut chain = vec![Arc::default()];
        chain.extend(self.chain.iter().map(Arc::clone));
        Self { token: self.token.child_token(), chain }
    }

    /// Gives the signal. The first reason stays.
    pub fn stop(&self, reason: StopReason) {
        if let Some(own) = self.chain.first() {
            own.get_or_init(|| reason);
        }
        self.token.cancel();
    }

    /// The reason, once the signal was given.
    pub fn reason(&self) -> Option<StopReason> {
        if !self.token.is_cancelled() {
            return None;
        }
        self.chain.iter().find_map(|reason| reason.get().copied())
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
