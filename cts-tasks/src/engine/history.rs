//! The newest things that happened to tasks, numbered, for those who follow them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::Local;
use tokio::{sync::watch, time::Instant};

use super::Engine;
use crate::{Change, StreamEvent, StreamEventKind, TaskName};

/// Number of events that are kept for those who come back after a while.
const KEPT: usize = 1024;

/// Limit of the text that kept events hold, in bytes, not counting the newest: an
/// error may be long.
const KEPT_TEXT: usize = 4 << 20;

/// Time for which somebody who follows may be away between two requests and still
/// count as following.
const AWAY: Duration = Duration::from_secs(10);

/// The newest things that happened. Ids begin with the time of the process's start, so that
/// they grow from one process to the next.
#[derive(Debug)]
pub(crate) struct History {
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<StreamEvent>,
    /// Bytes of text in `events`.
    text: usize,
    next: u64,
    last_asked: Option<Instant>,
}

impl Default for History {
    fn default() -> Self {
        let start = u64::try_from(Local::now().timestamp_micros()).unwrap_or_default();
        let kept = Kept { events: VecDeque::new(), text: 0, next: start, last_asked: None };
        Self { kept: Mutex::new(kept), newest: watch::Sender::new(start) }
    }
}

impl History {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a committed batch tells.
    pub(crate) fn committed(&self, batch: &[Change]) {
        for (task, kind) in batch.iter().filter_map(StreamEventKind::of) {
            self.add(task, kind);
        }
    }

    pub(crate) fn add(&self, task: &TaskName, kind: StreamEventKind) {
        let mut kept = self.kept();
        kept.next += 1;
        let (id, time) = (kept.next, Local::now());
        kept.text += text(&kind);
        while kept.events.len() >= KEPT || kept.text > KEPT_TEXT {
            let Some(oldest) = kept.events.pop_front() else { break };
            kept.text -= text(&oldest.kind);
        }
        kept.events.push_back(StreamEvent { id, time, task_name: task.clone(), kind });
        // Under the lock, so that of two writers the greater id stays.
        self.newest.send_replace(id);
    }

    /// Returns `true` while somebody follows what happens.
    pub(crate) fn is_followed(&self) -> bool {
        self.newest.receiver_count() > 0
            || self.kept().last_asked.is_some_and(|asked| asked.elapsed() < AWAY)
    }

    fn after(&self, id: u64) -> Vec<StreamEvent> {
        let mut kept = self.kept();
        kept.last_asked = Some(Instant::now());
        kept.events.iter().filter(|event| event.id > id).cloned().collect()
    }
}

/// Bytes of the text that an event may bring along.
fn text(kind: &StreamEventKind) -> usize {
    match kind {
        StreamEventKind::Run { event } => {
            let error = event.error.as_ref().map_or(0, |error| error.message.len());
            error + event.notes.iter().map(String::len).sum::<usize>()
        }
        StreamEventKind::Progress { line } => line.len(),
        _ => 0,
    }
}

/// Follows what happens to tasks; see [`Engine::follow`].
#[derive(Debug)]
pub struct Follower {
    engine: Engine,
    newest: watch::Receiver<u64>,
    after: u64,
}

impl Engine {
    /// Follows what happens to tasks: runs that end, plans that wait, tasks that come and
    /// go, progress. With `after`, the id of something earlier, what came since is
    /// given first, as far as it is kept: the newest 1,024.
    pub fn follow(&self, after: Option<u64>) -> Follower {
        let newest = self.shared.cached_store.history.newest.subscribe();
        let after = after.unwrap_or_else(|| *newest.borrow());
        Follower { engine: self.clone(), newest, after }
    }
}

impl Follower {
    /// Returns the id of the newest thing that was told, or of that after which it began.
    pub fn position(&self) -> u64 {
        self.after
    }

    /// Waits until something has happened, and returns all that has, the oldest first.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Vec<StreamEvent> {
        loop {
            // Before the look, so that an event which comes after it wakes the wait below.
            self.newest.mark_unchanged();
            let events = self.engine.shared.cached_store.history.after(self.after);
            if let Some(last) = events.last() {
                self.after = last.id;
                return events;
            }
            if self.newest.changed().await.is_err() {
                // The engine, which this holds, holds the sender.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(history: &History, text: &str) {
        let task = TaskName::try_from("web".to_owned()).unwrap();
        history.add(&task, StreamEventKind::Progress { line: text.to_owned() });
    }

    #[test]
    fn the_newest_are_kept_and_ids_grow() {
        let history = History::default();
        let start = *history.newest.borrow();
        for number in 0..KEPT + 10 {
            line(&history, &number.to_string());
        }
        let all = history.after(start);
        assert_eq!(all.len(), KEPT);
        assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert_eq!(history.after(all[KEPT - 2].id), all[KEPT - 1..]);
    }

    #[test]
    fn long_texts_leave_room_for_fewer() {
        let history = History::default();
        let start = *history.newest.borrow();
        let long = "x".repeat(KEPT_TEXT / 4);
        for _ in 0..10 {
            line(&history, &long);
        }
        assert_eq!(history.after(start).len(), 4);
        line(&history, &"x".repeat(2 * KEPT_TEXT));
        assert_eq!(history.after(start).len(), 1);
    }

    #[test]
    fn who_follows_is_known() {
        let history = History::default();
        assert!(!history.is_followed());
        let follower = history.newest.subscribe();
        assert!(history.is_followed());
        drop(follower);
        assert!(!history.is_followed());
    }
}
