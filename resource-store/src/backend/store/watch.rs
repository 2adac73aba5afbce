//! One watch: the snapshot first, then the events of a topic.
//!
//! | stage | comes from | changes meanwhile |
//! |---|---|---|
//! | snapshot | the store as of one moment | move into the backlog, merged |
//! | backlog | the backlog | move into the backlog, merged |
//! | changes | the topic | stay in the topic, each by itself |
//!
//! A watcher that takes nothing cannot move changes into its backlog. So in the
//! first two stages the topic spills into [`Missed`] what it has no room for:
//! however slow a watcher is, it gets its snapshot whole. Only one that has caught
//! up, and then falls behind by more than the topic holds, has to start again.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{Stream, StreamExt as _};

use super::{
    backlog::Backlog,
    change::Change,
    missed::{Missed, Shown},
    topics::ChangeReader,
};
use crate::{
    backend::{Error, Query, Result, WatchEvent},
    pb::Resource,
};

/// Number of events taken at a time.
const BATCH: usize = 64;

/// The events of one watch over a store that publishes its changes.
pub(crate) struct StoreWatch<S> {
    shown: Arc<Shown>,
    reader: ChangeReader,
    stage: Stage<S>,
    /// Changes since the snapshot, until the watcher has caught up.
    backlog: Backlog,
    changes: VecDeque<Change>,
}

enum Stage<S> {
    Snapshot(S),
    Backlog,
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
        mut reader: ChangeReader,
        snapshot_index: u64,
        snapshot: S,
    ) -> Self {
        let stage = Stage::Snapshot(snapshot);
        let (backlog, changes) = (Backlog::default(), VecDeque::new());
        let shown = Arc::new(Shown { query, snapshot_index });
        reader.spill_into(Missed::new(Arc::clone(&shown)));
        Self { shown, reader, stage, backlog, changes }
    }

    /// Moves what is in the topic into the backlog, so that the topic, which is
    /// bounded and shared, does not run over while the watcher catches up.
    fn fill_backlog(&mut self, cx: &mut Context<'_>) -> Result<()> {
        loop {
            match self.reader.poll_read(cx, &mut self.changes, BATCH) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_ended)) => return Err(Error::WatchClosed),
                Poll::Pending => return Ok(()),
            }
            while let Some(change) = self.changes.pop_front() {
                if self.shown.contains(&change) {
                    self.backlog.push(change);
                }
            }
        }
    }

    fn caught_up(&mut self) {
        self.reader.spill_no_more();
        self.stage = Stage::Changes;
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent>>> {
        loop {
            while let Some(change) = self.changes.pop_front() {
                if self.shown.contains(&change) {
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
        if matches!(this.stage, Stage::Snapshot(_) | Stage::Backlog)
            && let Err(error) = this.fill_backlog(cx)
        {
            this.stage = Stage::Ended;
            return Poll::Ready(Some(Err(error)));
        }
        match &mut this.stage {
            Stage::Snapshot(resources) => {
                let event = match ready!(resources.poll_next_unpin(cx)) {
                    Some(Ok(resource)) => Ok(WatchEvent::Upsert(resource)),
                    Some(Err(error)) => {
                        this.stage = Stage::Ended;
                        Err(error)
                    }
                    None => {
                        this.stage = Stage::Backlog;
                        if this.backlog.is_empty() {
                            this.caught_up();
                        }
                        Ok(WatchEvent::EndOfSnapshot)
                    }
                };
                Poll::Ready(Some(event))
            }
            Stage::Backlog => {
                if let Some(change) = this.backlog.pop() {
                    return Poll::Ready(Some(Ok(change.into_event())));
                }
                this.caught_up();
                // The topic was empty when this poll began, so what is in it now follows on the backlog.
                this.poll_change(cx)
            }
            Stage::Changes => this.poll_change(cx),
            Stage::Ended => Poll::Ready(None),
        }
    }
}
