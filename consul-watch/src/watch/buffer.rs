//! Collects changes until Consul has been quiet for a while.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::time::{Instant, Sleep, sleep};

use crate::watch::{Snapshot, Watch};

/// Time for which changes are collected before they are acted on.
///
/// The first change starts a quiet time of `min` and sets a deadline of `max`; each further
/// change starts the quiet time again, but never past the deadline.
///
/// Source: hcat 0.2, buffer period; Consul-Terraform-Sync 0.9, `buffer_period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    min: Duration,
    max: Duration,
}

impl Buffer {
    /// A quiet time of `min`, and at most `max` after the first change. A `max` below `min`
    /// is the quiet time then.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    /// A quiet time of `min`, and at most four times that: under changes that do not stop, what
    /// was collected passes after four times `min` without any quiet, which [`Buffered`] logs and
    /// [`BufferTimer::is_cut_short`] shows. [`Buffer::new`] sets another deadline.
    pub const fn quiet(min: Duration) -> Self {
        Self { min, max: min.saturating_mul(4) }
    }

    /// Returns a buffer that collects nothing: every change is acted on at once.
    pub const fn none() -> Self {
        Self::new(Duration::ZERO, Duration::ZERO)
    }
}

/// The timer of a [`Buffer`], without a clock: moments are counted from any fixed one.
#[derive(Debug, Clone)]
pub struct BufferTimer {
    buffer: Buffer,
    pending: Option<Pending>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    fires_at: Duration,
    deadline: Duration,
    cut_short: bool,
}

impl BufferTimer {
    /// A timer that has seen no change.
    pub const fn new(buffer: Buffer) -> Self {
        Self { buffer, pending: None }
    }

    /// Takes notice of a change at `now`.
    pub fn change(&mut self, now: Duration) {
        let first = || now.saturating_add(self.buffer.max);
        let deadline = self.pending.map_or_else(first, |pending| pending.deadline);
        let quiet = now.saturating_add(self.buffer.min);
        let fires_at = quiet.min(deadline);
        // A deadline below the quiet time holds for the first change already: it was asked for.
        let cut_short = self.pending.is_some() && quiet > deadline;
        self.pending = Some(Pending { fires_at, deadline, cut_short });
    }

    /// Returns the time at which the collected changes are to be acted on; `None`
    /// without any.
    pub fn fires_at(&self) -> Option<Duration> {
        self.pending.map(|pending| pending.fires_at)
    }

    /// Returns `true` if the deadline, and not a quiet time, ends the collection.
    pub fn is_cut_short(&self) -> bool {
        self.pending.is_some_and(|pending| pending.cut_short)
    }

    /// Forgets what was collected: the next change starts a new period.
    pub fn reset(&mut self) {
        self.pending = None;
    }
}

/// A stream whose values are held back until a [`Buffer`] lets the newest one through.
///
/// Errors pass at once. At the end of the stream a value that was held back comes at once.
///
/// # Cancel safety
///
/// Dropping the future of `next` loses nothing.
#[must_use = "streams do nothing unless polled"]
pub struct Buffered<S, T> {
    inner: S,
    timer: BufferTimer,
    started: Instant,
    held: Option<T>,
    sleep: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

// Values are moved, never pinned.
impl<S: Unpin, T> Unpin for Buffered<S, T> {}

impl<S, T> Buffered<S, T> {
    /// Holds back the values of `inner`.
    pub fn new(inner: S, buffer: Buffer) -> Self {
        Self {
            inner,
            timer: BufferTimer::new(buffer),
            started: Instant::now(),
            held: None,
            sleep: None,
            ended: false,
        }
    }

    /// The stream behind.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    fn hold(&mut self, value: T) {
        self.held = Some(value);
        let now = self.started.elapsed();
        self.timer.change(now);
        let rest = self.timer.fires_at().map(|at| at.saturating_sub(now));
        self.sleep = rest.map(|rest| Box::pin(sleep(rest)));
    }

    fn is_due(&self) -> bool {
        self.timer.fires_at().is_some_and(|at| at <= self.started.elapsed())
    }

    fn fire(&mut self) -> Option<T> {
        if self.timer.is_cut_short() && !self.ended {
            tracing::info!(
                max_ms = u64::try_from(self.timer.buffer.max.as_millis()).unwrap_or(u64::MAX),
                "changes do not stop: what was collected passes at the buffer's deadline"
            );
        }
        self.timer.reset();
        self.sleep = None;
        self.held.take()
    }
}

impl<S, T, E> Stream for Buffered<S, T>
where
    S: Stream<Item = Result<T, E>> + Unpin,
{
    type Item = Result<T, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.ended {
            match Pin::new(&mut this.inner).poll_next(cx) {
                Poll::Ready(Some(Ok(value))) => this.hold(value),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => this.ended = true,
                Poll::Pending => break,
            }
            // A stream that always has something must not keep this from firing.
            if this.is_due() {
                return Poll::Ready(this.fire().map(Ok));
            }
        }
        if this.ended {
            return Poll::Ready(this.fire().map(Ok));
        }
        let slept = this.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if slept { Poll::Ready(this.fire().map(Ok)) } else { Poll::Pending }
    }
}

impl<S: fmt::Debug, T> fmt::Debug for Buffered<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffered")
            .field("inner", &self.inner)
            .field("timer", &self.timer)
            .finish_non_exhaustive()
    }
}

impl<V: Send + Sync + 'static> Watch<V> {
    /// Lets snapshots through only when Consul has been quiet for a while.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn buffered(self, buffer: Buffer) -> Buffered<Self, Snapshot<V>> {
        Buffered::new(self, buffer)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use proptest::prelude::*;
    use tokio::sync::mpsc;

    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    const fn buffer(min: u64, max: u64) -> Buffer {
        Buffer::new(ms(min), ms(max))
    }

    /// Changes at the given moments; the delay from the first to the firing.
    fn total(buffer: Buffer, changes: &[u64]) -> Duration {
        let mut timer = BufferTimer::new(buffer);
        for at in changes {
            timer.change(ms(1000 + at));
        }
        timer.fires_at().unwrap().saturating_sub(ms(1000))
    }

    /// Spec: CW34
    #[test]
    fn one_change_waits_for_the_quiet_time() {
        assert_eq!(total(buffer(2, 8), &[0]), ms(2));
        assert_eq!(total(Buffer::none(), &[0]), ms(0));
    }

    /// Spec: CW35
    #[test]
    fn further_changes_snooze_up_to_the_deadline() {
        assert_eq!(total(buffer(4, 12), &[0, 4]), ms(8));
        assert_eq!(total(buffer(4, 21), &[0, 4, 8, 12]), ms(16));
        assert_eq!(total(buffer(4, 6), &[0, 1, 3, 5]), ms(6));
        assert_eq!(total(Buffer::quiet(ms(4)), &[0, 3, 6, 9, 12, 15]), ms(16));
    }

    #[test]
    fn a_deadline_that_cuts_the_quiet_time_short_is_known() {
        for (changes, cut) in [(&[0][..], false), (&[0, 3], false), (&[0, 3, 6, 9, 12, 15], true)] {
            let mut timer = BufferTimer::new(Buffer::quiet(ms(4)));
            for at in changes {
                timer.change(ms(*at));
            }
            assert_eq!(timer.is_cut_short(), cut, "{changes:?}");
        }
        let mut timer = BufferTimer::new(buffer(4, 2));
        timer.change(ms(0));
        assert!(!timer.is_cut_short(), "a deadline before the quiet time is the quiet time");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_do_not_stop_are_logged_when_the_deadline_passes() {
        let log = crate::testing::Log::start();
        let (sender, mut values) = fed(Buffer::quiet(ms(4)));
        for number in 0..8 {
            sender.send(Ok(number)).await.unwrap();
            drop(tokio::time::timeout(ms(3), values.next()).await);
        }
        assert_eq!(log.with("deadline").len(), 1, "{}", log.text());
    }

    #[test]
    fn after_a_reset_the_next_change_starts_a_new_period() {
        let mut timer = BufferTimer::new(buffer(4, 6));
        timer.change(ms(1));
        timer.reset();
        assert_eq!(timer.fires_at(), None);
        timer.change(ms(100));
        assert_eq!(timer.fires_at(), Some(ms(104)));
    }

    /// A buffered stream and what feeds it.
    fn fed(
        buffer: Buffer,
    ) -> (mpsc::Sender<Result<u8, ()>>, impl Stream<Item = Result<u8, ()>> + Unpin) {
        let (sender, mut receiver) = mpsc::channel(8);
        let values = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        (sender, Buffered::new(values, buffer))
    }

    /// Spec: CW33, CW34, CW35, CW38
    #[tokio::test(start_paused = true)]
    async fn the_newest_value_comes_after_the_quiet_time() {
        let (sender, mut values) = fed(buffer(4, 6));
        let start = Instant::now();
        sender.send(Ok(1)).await.unwrap();
        assert!(tokio::time::timeout(ms(3), values.next()).await.is_err());
        sender.send(Ok(2)).await.unwrap();
        assert_eq!(values.next().await, Some(Ok(2)));
        // Three of quiet, snoozed, cut at the deadline of six.
        assert_eq!(start.elapsed(), ms(6));
        // The next change starts a new period, however long after.
        tokio::time::advance(ms(50)).await;
        sender.send(Ok(3)).await.unwrap();
        assert_eq!(values.next().await, Some(Ok(3)));
        assert_eq!(start.elapsed(), ms(60));
    }

    #[tokio::test(start_paused = true)]
    async fn errors_pass_at_once_and_the_end_lets_go_what_was_held() {
        let (sender, mut values) = fed(buffer(4, 6));
        let start = Instant::now();
        sender.send(Ok(1)).await.unwrap();
        sender.send(Err(())).await.unwrap();
        assert_eq!(values.next().await, Some(Err(())));
        drop(sender);
        assert_eq!(values.next().await, Some(Ok(1)));
        assert_eq!(values.next().await, None);
        assert_eq!(start.elapsed(), ms(0));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_buffer_every_value_passes() {
        let (sender, mut values) = fed(Buffer::none());
        for value in [1, 2] {
            sender.send(Ok(value)).await.unwrap();
        }
        assert_eq!(values.next().now_or_never(), Some(Some(Ok(1))));
        assert_eq!(values.next().now_or_never(), Some(Some(Ok(2))));
    }

    proptest! {
        /// It fires at the quiet time or the deadline, whichever comes first, and never panics.
        #[test]
        fn it_fires_within_its_bounds(
            min in any::<u64>(),
            max in any::<u64>(),
            mut moments in proptest::collection::vec(any::<u64>(), 1..20),
        ) {
            moments.sort_unstable();
            let mut timer = BufferTimer::new(Buffer::new(ms(min), ms(max)));
            for at in &moments {
                timer.change(ms(*at));
            }
            let fires_at = timer.fires_at().unwrap();
            prop_assert!(fires_at <= ms(moments[0]).saturating_add(ms(max)));
            prop_assert!(fires_at <= ms(moments[moments.len() - 1]).saturating_add(ms(min)));
        }
    }
}
