//! How long a connection may keep the server waiting.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long a request's head may take to arrive.
///
/// Source: Consul-Terraform-Sync 0.9, read timeout of the API.
pub(super) const HEAD: Duration = Duration::from_secs(15);

/// How long a connection may be kept without a request.
///
/// Source: Consul-Terraform-Sync 0.9, idle timeout of the API.
pub(super) const IDLE: Duration = Duration::from_mins(1);

/// Where a connection stands between two requests.
#[derive(Debug, Clone)]
pub(super) struct Phase(Arc<Mutex<At>>);

#[derive(Debug, Clone, Copy)]
enum At {
    /// Nothing of the next request has come.
    Idle { until: Instant },
    /// A head is coming.
    Head { until: Instant },
    /// A request is being answered, for as long as that takes.
    Answering,
}

impl Phase {
    /// A client that connects has a request.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(At::Head { until: Instant::now() + HEAD })))
    }

    /// A head is complete.
    pub(super) fn answering(&self) {
        *self.lock() = At::Answering;
    }

    /// An answer is complete.
    pub(super) fn answered(&self) {
        *self.lock() = At::Idle { until: Instant::now() + IDLE };
    }

    fn bytes_came(&self) {
        let mut at = self.lock();
        if let At::Idle { .. } = *at {
            *at = At::Head { until: Instant::now() + HEAD };
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match *self.lock() {
            At::Idle { until } | At::Head { until } => Some(until),
            At::Answering => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, At> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose reads fail when its [`Phase`] has lasted too long.
#[derive(Debug)]
pub(super) struct Paced<S> {
    inner: S,
    phase: Phase,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(super) fn new(inner: S, phase: Phase) -> Self {
        let alarm = Box::pin(sleep_until(Instant::now() + HEAD));
        Self { inner, phase, alarm }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            if buf.filled().len() > before {
                self.phase.bytes_came();
            }
            return Poll::Ready(read);
        }
        let Some(deadline) = self.phase.deadline() else { return Poll::Pending };
        if self.alarm.deadline() != deadline {
            self.alarm.as_mut().reset(deadline);
        }
        ready!(self.alarm.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
