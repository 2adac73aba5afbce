//! A watch that is compared with what a read shows.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{Client, Query, Watch, Watcher, query::Position};
use tokio::{task::JoinHandle, time::timeout};

/// Follows one query and compares it with the truth.
#[async_trait]
pub(crate) trait Follower: Send {
    /// Waits until the watch shows what a read shows.
    async fn settle(&mut self, client: &Client, limit: Duration);
    /// Waits until the watch has ended, and fails if it said anything twice.
    async fn finish(self: Box<Self>);
}

struct Followed<Q: Query> {
    query: Q,
    watch: Watch<Q::Value>,
    reader: JoinHandle<()>,
}

pub(crate) fn follow<Q: Query + Clone>(watcher: &Watcher, query: Q) -> Box<dyn Follower> {
    let watch = watcher.watch(query.clone());
    let (mut items, of) = (watch.clone(), query.clone());
    let reader = tokio::spawn(async move {
        let (mut last, mut seq) = (None::<Arc<Q::Value>>, 0);
        loop {
            match items.changed().await {
                Ok(snapshot) => {
                    assert!(snapshot.seq > seq, "{of:?} went back");
                    let twice = last.is_some_and(|last| of.same(&last, &snapshot.data));
                    assert!(!twice, "{of:?} twice: {:?}", snapshot.data);
                    (last, seq) = (Some(snapshot.data), snapshot.seq);
                }
                Err(error) if error.is_fatal() => return,
                Err(_) => {}
            }
        }
    });
    Box::new(Followed { query, watch, reader })
}

#[async_trait]
impl<Q: Query> Follower for Followed<Q> {
    async fn settle(&mut self, client: &Client, limit: Duration) {
        let truth = self.query.fetch(client, &Position::Start, limit).await.unwrap().value;
        let settled = timeout(limit, async {
            while !self.watch.latest().is_some_and(|now| self.query.same(&now.data, &truth)) {
                drop(self.watch.changed().await);
            }
        });
        let settled = settled.await.is_ok();
        assert!(settled, "{:?} shows {:?}, not {truth:?}", self.query, self.watch.latest());
    }

    async fn finish(self: Box<Self>) {
        self.reader.await.unwrap();
    }
}
