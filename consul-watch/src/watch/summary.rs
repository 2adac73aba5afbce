//! Log lines about many watches: one for each cause and second, with a count.
//!
//! A Consul that goes away fails thousands of watches at once, and all for the same reason. What
//! one watch has to say is at level `debug`; this is what an operator reads.

use std::{
    collections::HashMap,
    error::Error as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Error, query::QueryKey};

/// Time for which lines of the same cause are collected into one.
const WINDOW: Duration = Duration::from_secs(1);
/// Causes that have a line of their own at the same time; all others share one.
const MOST_CAUSES: usize = 16;

/// An event that many watches can have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Occasion {
    /// An attempt failed, the first in a row.
    Failed,
    /// An attempt succeeded after failures.
    Recovered,
    /// An index went backwards.
    Replaced,
    /// A broad query failed.
    BroadFailed,
    /// The periodic read of a covered watch found a change that no signal reported.
    Repaired,
}

#[derive(Debug)]
struct Entry {
    watches: u64,
    /// Key of one of the watches.
    key: QueryKey,
    /// The span of that watch: its service or path, and its operation.
    span: tracing::Span,
    error: Option<Arc<Error>>,
}

/// Collects events of watches and writes them to the log.
#[derive(Debug)]
pub(super) struct Summary {
    open: Mutex<HashMap<(Occasion, String), Entry>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Summary {
    /// Creates a summary whose lines are written from `tasks`, at once when `stop` is cancelled.
    pub(super) fn new(tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { open: Mutex::default(), tasks, stop }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<(Occasion, String), Entry>> {
        // Nothing that holds the lock can leave the map half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event of the watch with this key.
    pub(super) fn add(
        self: &Arc<Self>,
        occasion: Occasion,
        key: &QueryKey,
        error: Option<&Arc<Error>>,
    ) {
        let mut cause = error.map(|error| cause(error)).unwrap_or_default();
        let mut open = self.open();
        if open.len() >= MOST_CAUSES && !open.contains_key(&(occasion, cause.clone())) {
            // Causes hold texts of servers, which may differ for each watch: the map must not grow
            // with them.
            cause = String::new();
        }
        let id = (occasion, cause);
        if let Some(entry) = open.get_mut(&id) {
            entry.watches += 1;
            return;
        }
        let span = tracing::Span::current();
        let entry = Entry { watches: 1, key: key.clone(), span, error: error.cloned() };
        open.insert(id.clone(), entry);
        drop(open);
        let summary = Arc::clone(self);
        self.tasks.spawn(async move {
            let window = tokio::time::sleep(WINDOW);
            // A shutdown writes what was collected rather than to lose it.
            let _stopped = summary.stop.run_until_cancelled(window).await;
            let entry = summary.open().remove(&id);
            if let Some(entry) = entry {
                entry.span.in_scope(|| entry.write(id.0));
            }
        });
    }
}

impl Entry {
    fn write(&self, occasion: Occasion) {
        let Self { watches, key, error, span: _ } = self;
        let operation = error.as_deref().map_or_else(|| key.operation(), operation);
        let error = error.as_deref().map(|error| error as &dyn std::error::Error);
        match occasion {
            Occasion::Failed => tracing::warn!(
                watch.key = %key, watches, consul.operation = operation, error,
                "watch failed and will try again"
            ),
            Occasion::BroadFailed => tracing::warn!(
                watch.key = %key, failures = watches, consul.operation = operation, error,
                "broad query failed and will try again; the watches that rely on it read for themselves"
            ),
            Occasion::Recovered => tracing::info!(
                watch.key = %key, watches, consul.operation = operation,
                "watch works again"
            ),
            Occasion::Replaced => tracing::info!(
                watch.key = %key, watches, consul.operation = operation,
                "Consul's history was replaced: its index went backwards"
            ),
            Occasion::Repaired => tracing::warn!(
                watch.key = %key, watches, consul.operation = operation,
                "watch had missed a change, and found it by its periodic read"
            ),
        }
    }
}

/// The text that is the same for all watches that fail for one reason.
fn cause(error: &Error) -> String {
    match error {
        Error::Status { status, message, .. } => format!("{status} {message}"),
        Error::Timeout { .. } => "timeout".to_owned(),
        _ => {
            let mut root = error.source();
            // The innermost cause is what the watches have in common; the layers above name each
            // its own request.
            while let Some(deeper) = root.and_then(std::error::Error::source) {
                root = Some(deeper);
            }
            root.map_or_else(|| error.to_string(), ToString::to_string)
        }
    }
}

fn operation(error: &Error) -> &str {
    match error {
        Error::Transport { operation, .. }
        | Error::Timeout { operation, .. }
        | Error::Status { operation, .. }
        | Error::Decode { operation, .. }
        | Error::Input { operation, .. }
        | Error::Other { operation, .. } => operation,
        Error::Config { setting, .. } => setting,
        Error::MissingFeature { setting, .. } => setting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Log;

    fn lost(operation: &'static str, source: &str) -> Arc<Error> {
        let address = "127.0.0.1:8500".to_owned();
        Arc::new(Error::Transport { operation, address, source: source.into() })
    }

    #[tokio::test(start_paused = true)]
    async fn one_cause_is_one_line_for_each_second() {
        let log = Log::start();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let summary = Arc::new(Summary::new(tasks.clone(), stop.clone()));
        for second in 0..3 {
            for number in 0..100 {
                let key = QueryKey::new("kv.get", &(number, second));
                summary.add(Occasion::Failed, &key, Some(&lost("kv.get", "refused")));
                let key = QueryKey::new("health.service", &(number, second));
                summary.add(Occasion::Failed, &key, Some(&lost("health.service", "reset")));
            }
            tokio::time::sleep(WINDOW * 2).await;
        }
        assert_eq!(log.with("watches=100").len(), 6, "{}", log.text());
        // The last ones are not lost with the watcher.
        summary.add(Occasion::Recovered, &QueryKey::new("kv.get", &7), None);
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        assert_eq!(log.with("watch.key=kv.get7 watches=1").len(), 1, "{}", log.text());
    }

    #[tokio::test(start_paused = true)]
    async fn many_causes_share_a_line_in_the_end() {
        let log = Log::start();
        let summary = Arc::new(Summary::new(TaskTracker::new(), CancellationToken::new()));
        for number in 0..1000 {
            let error = lost("kv.get", &number.to_string());
            summary.add(Occasion::Failed, &QueryKey::new("kv.get", &number), Some(&error));
        }
        tokio::time::sleep(WINDOW * 2).await;
        assert_eq!(log.with("watch failed").len(), MOST_CAUSES + 1, "{}", log.text());
    }
}
