//! One watch: the snapshot first, then the events of a topic.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{Stream, StreamExt as _};

use super::{change::Change, topic::Reader};
use crate::{
    backend::{Error, Query, Result, WatchEvent},
    pb::Resource,
};

/// How many events are taken at a time.
const BATCH: usize = 64;

/// The events of one watch over a store that publishes its changes.
pub(crate) struct StoreWatch<S> {
    query: Query,
    reader: Reader<Change>,
    /// Changes up to this index are part of the snapshot.
    snapshot_index: u64,
    stage: Stage<S>,
    changes: VecDeque<Change>,
}

enum Stage<S> {
    Snapshot(S),
    Changes,
    Ended,
}

impl<S> StoreWatch<S>
where
    S: Stream<Item = Result<Arc<Resource>>> + Unpin,
{
    /// `reader` was made before `snapshot` was taken, so that nothing is lost
    /// between them; what both hold is dropped by its index.
    pub(crate) fn new(
        query: Query,
        reader: Reader<Change>,
        snapshot_index: u64,
        snapshot: S,
    ) -> Self {
        let stage = Stage::Snapshot(snapshot);
        Self { query, reader, snapshot_index, stage, changes: VecDeque::new() }
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

impl<S> Stream for StoreWatch<S>
where
    S: Stream<Item = Result<Arc<Resource>>> + Unpin,
{
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        match &mut this.stage {
            Stage::Snapshot(resources) => {
                let event = match ready!(resources.poll_next_unpin(cx)) {
                    Some(Ok(resource)) => Ok(WatchEvent::Upsert(resource)),
                    Some(Err(error)) => {
                        this.stage = Stage::Ended;
                        Err(error)
                    }
                    None => {
                        this.stage = Stage::Changes;
                        Ok(WatchEvent::EndOfSnapshot)
                    }
                };
                Poll::Ready(Some(event))
            }
            Stage::Changes => this.poll_change(cx),
            Stage::Ended => Poll::Ready(None),
        }
    }
}
