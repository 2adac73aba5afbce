//! One watch: the snapshot first, then the events of a topic.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::Stream;

use super::{
    key,
    state::{Change, State},
    topic::Reader,
};
use crate::{
    backend::{Error, Query, Result, WatchEvent},
    pb::Resource,
};

/// How many resources or events are taken at a time.
const BATCH: usize = 64;

/// The events of one watch of the memory backend.
pub(super) struct MemoryWatch {
    query: Query,
    reader: Reader<Change>,
    /// Changes up to this index are part of the snapshot.
    snapshot_index: u64,
    stage: Stage,
    changes: VecDeque<Change>,
}

enum Stage {
    Snapshot { rest: Arc<State>, last: Page, batch: VecDeque<Arc<Resource>> },
    Changes,
    Ended,
}

/// Where the next page of the snapshot begins.
enum Page {
    Start,
    After(Vec<u8>),
    End,
}

impl MemoryWatch {
    /// `reader` was made before `snapshot` was taken, so that nothing is lost
    /// between them; what both hold is dropped by its index.
    pub(super) fn new(query: Query, reader: Reader<Change>, snapshot: Arc<State>) -> Self {
        let snapshot_index = snapshot.index();
        let stage = Stage::Snapshot { rest: snapshot, last: Page::Start, batch: VecDeque::new() };
        Self { query, reader, snapshot_index, stage, changes: VecDeque::new() }
    }

    fn next_of_snapshot(&mut self) -> Option<WatchEvent> {
        loop {
            let Stage::Snapshot { rest, last, batch } = &mut self.stage else { return None };
            if let Some(resource) = batch.pop_front() {
                return Some(WatchEvent::Upsert(resource));
            }
            let from = match std::mem::replace(last, Page::End) {
                Page::Start => None,
                Page::After(key) => Some(key),
                Page::End => {
                    self.stage = Stage::Changes;
                    return Some(WatchEvent::EndOfSnapshot);
                }
            };
            let prefix = key::query_prefix(&self.query);
            let end = rest.page(&prefix, from, BATCH, &self.query, batch);
            *last = end.map_or(Page::End, Page::After);
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent>>> {
        loop {
            while let Some(change) = self.changes.pop_front() {
                if change.index > self.snapshot_index && self.query.covers(&change.resource) {
                    return Poll::Ready(Some(Ok(change.into_event())));
                }
            }
            match self.reader.poll_read(cx, &mut self.changes, BATCH) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_ended)) => {
                    self.stage = Stage::Ended;
                    return Poll::Ready(Some(Err(Error::WatchClosed)));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Stream for MemoryWatch {
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(event) = this.next_of_snapshot() {
            return Poll::Ready(Some(Ok(event)));
        }
        match this.stage {
            Stage::Ended => Poll::Ready(None),
            Stage::Snapshot { .. } | Stage::Changes => this.poll_change(cx),
        }
    }
}
