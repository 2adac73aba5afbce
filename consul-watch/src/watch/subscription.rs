//! The stream of a query's snapshots.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::Stream;
use tokio::sync::watch::{Receiver, error::RecvError};
use tokio_util::sync::ReusableBoxFuture;

use crate::watch::{Snapshot, WatchError, WatchState, shared::Shared};

/// Receivers that a watch has: its own, and that of the wait for the next change.
pub(super) const RECEIVERS: usize = 2;

/// A query's snapshots, as a stream: the current one, then one for each change.
///
/// - Only real changes are items: equal data is not delivered again, whatever
///   Consul's index does.
/// - A slow subscriber sees only the newest snapshot; nothing queues up.
/// - Failures are items too and the stream goes on: data is kept, the watch
///   retries for ever and recovers. A denied permission is reported once. Only an
///   error that no retry can cure ends the stream; see [`WatchError::is_fatal`].
/// - Dropping the last watch of a query ends its request at once.
///
/// A clone is a further subscriber, which starts with the current snapshot.
pub struct Watch<T> {
    receiver: Receiver<Shared<T>>,
    pending: ReusableBoxFuture<'static, Change<T>>,
    seen_snapshot: u64,
    seen_failure: u64,
    closed: bool,
    /// The last item was given out.
    finished: bool,
}

impl<T: Send + Sync + 'static> Watch<T> {
    pub(super) fn new(receiver: Receiver<Shared<T>>) -> Self {
        let pending = ReusableBoxFuture::new(change(receiver.clone()));
        Self {
            receiver,
            pending,
            seen_snapshot: 0,
            seen_failure: 0,
            closed: false,
            finished: false,
        }
    }

    /// The newest snapshot, also if it was given out before; `None` before the first.
    pub fn latest(&self) -> Option<Snapshot<T>> {
        self.receiver.borrow().snapshot.clone()
    }

    /// Returns the health of the watch.
    pub fn state(&self) -> WatchState {
        let gone = self.receiver.has_changed().is_err();
        let shared = self.receiver.borrow();
        let state = WatchState { repairs: shared.repairs.count(), ..shared.state.clone() };
        drop(shared);
        if gone { state.ended() } else { state }
    }

    /// Waits for a snapshot that this subscriber has not seen, and marks it as seen.
    ///
    /// # Errors
    ///
    /// The watch's failures, one at a time; call again to go on. After the
    /// last item, and when the watcher was shut down, always a
    /// [fatal](WatchError::is_fatal) one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Result<Snapshot<T>, WatchError> {
        let item = poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await;
        item.unwrap_or_else(|| Err(self.end()))
    }

    /// The current snapshot, or the first one; failures that can pass are waited out.
    ///
    /// # Errors
    ///
    /// Only a [fatal](WatchError::is_fatal) one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn ready(&mut self) -> Result<Snapshot<T>, WatchError> {
        loop {
            if let Some(snapshot) = self.latest() {
                self.seen_snapshot = self.seen_snapshot.max(snapshot.seq);
                return Ok(snapshot);
            }
            match self.changed().await {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) if error.is_fatal() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the newest event since the last item.
    fn take(&mut self) -> Option<Result<Snapshot<T>, WatchError>> {
        let shared = self.receiver.borrow();
        // Data before a failure: who asks again gets the failure next.
        if let Some(snapshot) = &shared.snapshot
            && snapshot.seq > self.seen_snapshot
        {
            self.seen_snapshot = snapshot.seq;
            return Some(Ok(snapshot.clone()));
        }
        let (number, error) = shared.failure.as_ref()?;
        if *number <= self.seen_failure {
            return None;
        }
        self.seen_failure = *number;
        self.finished = error.is_fatal();
        Some(Err(error.clone()))
    }

    /// Returns a function that tells how the watch fails now, also after this subscriber is gone.
    pub(super) fn failure_of(&self) -> impl Fn() -> Option<WatchError> + Send + Sync + 'static {
        let receiver = self.receiver.clone();
        move || {
            if receiver.has_changed().is_err() {
                return Some(Self::end_of(&receiver));
            }
            receiver.borrow().state.last_error.clone()
        }
    }

    /// The error that stands for the end.
    fn end(&self) -> WatchError {
        Self::end_of(&self.receiver)
    }

    fn end_of(receiver: &Receiver<Shared<T>>) -> WatchError {
        let failure = receiver.borrow().failure.clone();
        failure
            .map(|(_number, error)| error)
            .filter(WatchError::is_fatal)
            .unwrap_or_else(WatchError::closed)
    }
}

/// Outcome of a wait for a change, and the receiver to wait for the next one with.
type Change<T> = (Result<(), RecvError>, Receiver<Shared<T>>);

async fn change<T: Send + Sync>(mut receiver: Receiver<Shared<T>>) -> Change<T> {
    let outcome = receiver.changed().await;
    (outcome, receiver)
}

impl<T: Send + Sync + 'static> Stream for Watch<T> {
    type Item = Result<Snapshot<T>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.finished {
                return Poll::Ready(None);
            }
            if let Some(item) = this.take() {
                return Poll::Ready(Some(item));
            }
            // Only after `take`: the last item may have been set just before the sender was
            // dropped.
            if this.closed {
                this.finished = true;
                return Poll::Ready(None);
            }
            let (outcome, receiver) = ready!(this.pending.poll(cx));
            this.closed = outcome.is_err();
            this.pending.set(change(receiver));
        }
    }
}

impl<T: Send + Sync + 'static> Clone for Watch<T> {
    fn clone(&self) -> Self {
        Self::new(self.receiver.clone())
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("state", &self.receiver.borrow().state)
            .field("seen", &self.seen_snapshot)
            .finish_non_exhaustive()
    }
}
