//! Progress that drivers report, on its way to subscribers.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::SystemTime,
};

use consul_watch::Clock;
use futures::stream::{Stream, unfold};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{Engine, Shared};
use crate::{Progress, StreamEventKind, TaskName};

/// Lines that a slow subscriber may lag behind before it loses the oldest.
const LINES: usize = 256;

/// A line that a driver told while it worked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressLine {
    /// The task.
    pub task: TaskName,
    /// Time of the report, by the clock of the options.
    pub time: SystemTime,
    /// For a person, without secrets.
    pub line: String,
}

/// Hands lines on; nobody needs to listen.
pub(super) struct Lines(broadcast::Sender<ProgressLine>);

impl Default for Lines {
    fn default() -> Self {
        Self(broadcast::Sender::new(LINES))
    }
}

impl Engine {
    /// Streams what drivers report from now on, of all tasks: a resource
    /// that is made, a lock that is waited for, a run that was begun elsewhere.
    ///
    /// A subscriber that lags more than 256 lines behind misses the oldest; no
    /// driver waits for one. The stream ends with the engine.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream ends the subscription.
    pub fn progress(&self) -> impl Stream<Item = ProgressLine> + Send + 'static {
        unfold(self.shared.lines.0.subscribe(), |mut lines| async move {
            loop {
                match lines.recv().await {
                    Ok(line) => return Some((line, lines)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::debug!(missed, "a subscriber of progress is slow");
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
    }
}

/// The sink of one task.
struct OfTask {
    task: TaskName,
    shared: Weak<Shared>,
    lines: broadcast::Sender<ProgressLine>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for OfTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfTask").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Progress for OfTask {
    fn report(&self, line: &str) {
        tracing::debug!(task.name = %self.task, line, "progress");
        let shared = self.shared.upgrade();
        if let Some(shared) = &shared {
            shared.work.told(&self.task, line);
        }
        if let Some(shared) = shared
            && shared.cached_store.history.is_followed()
        {
            let kind = StreamEventKind::Progress { line: line.to_owned() };
            shared.cached_store.history.add(&self.task, kind);
        }
        if self.lines.receiver_count() == 0 {
            return;
        }
        let line =
            ProgressLine { task: self.task.clone(), time: self.clock.now(), line: line.to_owned() };
        if self.lines.send(line).is_err() {
            tracing::trace!(task.name = %self.task, "nobody listens any more");
        }
    }

    fn is_heard(&self) -> bool {
        let followed = || {
            let shared = self.shared.upgrade();
            shared.is_some_and(|shared| shared.cached_store.history.is_followed())
        };
        self.lines.receiver_count() > 0 || tracing::enabled!(tracing::Level::DEBUG) || followed()
    }
}

impl Shared {
    pub(super) fn progress_of(self: &Arc<Self>, task: &TaskName) -> Arc<dyn Progress> {
        Arc::new(OfTask {
            task: task.clone(),
            shared: Arc::downgrade(self),
            lines: self.lines.0.clone(),
            clock: Arc::clone(&self.options.clock),
        })
    }
}

#[cfg(test)]
mod tests {
    use consul_watch::SystemClock;

    use super::*;

    #[test]
    fn lines_are_heard_while_somebody_subscribes() {
        let lines = Lines::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let task: TaskName = "web".to_owned().try_into().unwrap();
        let sink = OfTask { task, shared: Weak::new(), lines: lines.0.clone(), clock };
        assert!(!sink.is_heard());
        let subscriber = lines.0.subscribe();
        assert!(sink.is_heard());
        drop(subscriber);
        assert!(!sink.is_heard());
    }
}
