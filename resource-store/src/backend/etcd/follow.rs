//! One watch of etcd for all watches of a process.
//!
//! It covers every resource of a generation and the mark that ends it, in one
//! order. It is there while somebody watches. When its connection breaks, it
//! goes on on another member after the last revision that it knows to have seen
//! whole; where etcd has compacted that, every watch closes, and whoever wants
//! to know begins again.

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use super::{
    cluster::WatchStream,
    failure::Failure,
    layout::Generation,
    pb::{Event, KeyValue, WatchCreateRequest, WatchResponse, event::EventType},
    record::Stored,
    session::Session,
};
use crate::backend::{
    Consistency, Result,
    store::{self, change::Change, following::open},
};

const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Number of refusals of a watch in a row after which every watch closes.
const REFUSALS: u32 = 3;

/// The changes of a generation.
pub(super) type Following = store::following::Following<Generation>;

/// Returns the watch of etcd that is followed already, or begins to follow one.
pub(super) async fn following(session: &Arc<Session>) -> Result<Arc<Following>> {
    if let Some(following) = current(session) {
        return Ok(following);
    }
    let now = session.read(Consistency::Strong, "watching etcd", |_| Vec::new()).await?;
    let mut known = session.following.lock().unwrap_or_else(PoisonError::into_inner);
    // Another watch may have been faster.
    if let Some(following) = open(&known) {
        return Ok(following);
    }
    let following = Arc::new(Following::new(now.generation, session.watch_buffer));
    let follower = Follower {
        session: Arc::clone(session),
        following: Arc::downgrade(&following),
        generation: following.history().clone(),
        last: now.revision,
        refusals: 0,
    };
    following.fed_by(tokio::spawn(follower.run()));
    *known = Arc::downgrade(&following);
    Ok(following)
}

fn current(session: &Session) -> Option<Arc<Following>> {
    open(&session.following.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The task behind a [`Following`]. It ends with it.
struct Follower {
    session: Arc<Session>,
    following: Weak<Following>,
    generation: Generation,
    /// Every change up to this revision was published.
    last: i64,
    refusals: u32,
}

/// Why a stream is not followed any more.
#[derive(Debug)]
enum End {
    /// Go on on another one.
    Broken(String),
    /// Log in again and go on.
    Denied(String),
    /// The next events are unknown, for this reason.
    Closed(String),
}

impl Follower {
    async fn run(mut self) {
        let mut failures = 0_u32;
        loop {
            let before = self.last;
            let end = match self.begin().await {
                Ok(mut stream) => self.follow(&mut stream).await,
                Err(Failure::Refused(reason)) => End::Denied(reason),
                Err(Failure::Unreachable(reason)) => End::Broken(reason),
                Err(other) => End::Closed(format!("{other:?}")),
            };
            failures = if self.last > before { 0 } else { failures.saturating_add(1) };
            let end = match end {
                End::Denied(reason) => {
                    self.session.cluster.forget_token();
                    self.refusals += 1;
                    if self.refusals < REFUSALS { End::Broken(reason) } else { End::Closed(reason) }
                }
                other => other,
            };
            match end {
                End::Closed(reason) => {
                    tracing::info!(reason, "watches of etcd close");
                    if let Some(following) = self.following.upgrade() {
                        following.close();
                    }
                    return;
                }
                End::Broken(reason) | End::Denied(reason) => {
                    tracing::debug!(reason, failures, "the watch of etcd goes on elsewhere");
                }
            }
            let longest = (FIRST_DELAY * 2_u32.saturating_pow(failures.min(10))).min(LONGEST_DELAY);
            tokio::time::sleep(longest.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
    }

    async fn begin(&self) -> Result<WatchStream, Failure> {
        let keys = self.session.layout.watched(&self.generation);
        let create = WatchCreateRequest {
            key: keys.start,
            range_end: keys.end,
            start_revision: self.last + 1,
            progress_notify: true,
            prev_kv: true,
        };
        self.session.cluster.watch(create).await
    }

    async fn follow(&mut self, stream: &mut WatchStream) -> End {
        loop {
            let response = match stream.responses.message().await {
                Ok(Some(response)) => response,
                Ok(None) => {
                    self.session.cluster.turn_away();
                    return End::Broken("the stream ended".to_owned());
                }
                Err(status) => {
                    self.session.cluster.turn_away();
                    return End::Broken(super::failure::text(&status));
                }
            };
            let taken = if response.created && !response.canceled {
                self.check_generation().await
            } else {
                self.take(response)
            };
            if let Err(end) = taken {
                return end;
            }
        }
    }

    fn take(&mut self, response: WatchResponse) -> Result<(), End> {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        if response.compact_revision > 0 {
            return Err(End::Closed(format!(
                "etcd compacted up to revision {}, and the last one seen is {}",
                response.compact_revision, self.last
            )));
        }
        if response.canceled {
            return Err(End::Denied(response.cancel_reason));
        }
        self.refusals = 0;
        // With events the header tells how far the member is, which may be any
        // number of batches ahead; without, that there were none up to there.
        let mut seen = if response.events.is_empty() { revision } else { self.last };
        for event in response.events {
            seen = seen.max(self.take_event(event)?);
        }
        self.last = self.last.max(seen);
        Ok(())
    }

    /// An etcd that was set up again would take this watch for one of the
    /// future, and say nothing.
    async fn check_generation(&self) -> Result<(), End> {
        let read = self.session.read(Consistency::Strong, "watching etcd", |_| Vec::new()).await;
        match read {
            Ok(now) if now.generation == self.generation => Ok(()),
            Ok(_) => Err(End::Closed("another store is there now".to_owned())),
            Err(error) if error.is_retryable() => Err(End::Broken(error.to_string())),
            Err(error) => Err(End::Denied(error.to_string())),
        }
    }

    /// Publishes an event, and gives its revision.
    fn take_event(&mut self, event: Event) -> Result<i64, End> {
        let kind = event.r#type();
        let Some(kv) = event.kv else { return Ok(self.last) };
        if kv.mod_revision <= self.last {
            return Err(End::Closed(format!("etcd repeated revision {}", kv.mod_revision)));
        }
        if kv.key == self.session.layout.mark(&self.generation) {
            self.session.learn(None);
            return Err(End::Closed("the store was restored".to_owned()));
        }
        let decode = |stored: &KeyValue| {
            Stored::decode(&self.generation, stored)
                .map(|stored| stored.resource)
                .map_err(|error| End::Closed(error.to_string()))
        };
        let Ok(index) = u64::try_from(kv.mod_revision) else { return Ok(self.last) };
        let created = kv.create_revision == kv.mod_revision;
        let before = || {
            let gone = || End::Closed("etcd compacted what a change replaced".to_owned());
            event.prev_kv.as_ref().ok_or_else(gone).and_then(decode)
        };
        let change = match kind {
            EventType::Put if created => Change::write(index, None, decode(&kv)?),
            EventType::Put => Change::write(index, Some(&before()?), decode(&kv)?),
            EventType::Delete => Change::delete(index, before()?),
        };
        // Before anybody hears of it, so that an eventual read shows it.
        self.session.seen(kv.mod_revision);
        let following =
            self.following.upgrade().ok_or_else(|| End::Closed("nobody watches".to_owned()))?;
        following.publish(&change);
        Ok(kv.mod_revision)
    }
}
