//! How long a connection may keep the server waiting.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, sleep_until},
};

/// How long a request's head may take to arrive.
///
/// Source: Consul-Terraform-Sync 0.9, read timeout of the API.
pub(super) const HEAD: Duration = Duration::from_secs(15);

/// How long a connection may be kept without a request.
///
/// Source: Consul-Terraform-Sync 0.9, idle timeout of the API.
pub(super) const IDLE: Duration = Duration::from_mins(1);

/// Where a connection stands between two requests. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Phase(watch::Sender<At>);

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
        Self(watch::Sender::new(At::Head { until: Instant::now() + HEAD }))
    }

    /// A head is complete.
    pub(super) fn answering(&self) {
        self.0.send_replace(At::Answering);
    }

    /// An answer is complete.
    pub(super) fn answered(&self) {
        self.0.send_replace(At::Idle { until: Instant::now() + IDLE });
    }

    fn bytes_came(&self) {
        self.0.send_if_modified(|at| {
            let first = matches!(at, At::Idle { .. });
            if first {
                *at = At::Head { until: Instant::now() + HEAD };
            }
            first
        });
    }

    /// Waits until the client has kept the server waiting for too long.
    pub(super) async fn overdue(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let until = match *changes.borrow_and_update() {
                At::Idle { until } | At::Head { until } => Some(until),
                At::Answering => None,
            };
            tokio::select! {
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
                // The sender is this phase itself, so it is there.
                _ = changes.changed() => {}
            }
        }
    }
}

/// A connection that tells its [`Phase`] when bytes come.
#[derive(Debug)]
pub(super) struct Paced<S> {
    inner: S,
    phase: Phase,
}

impl<S> Paced<S> {
    pub(super) fn new(inner: S, phase: Phase) -> Self {
        Self { inner, phase }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.phase.bytes_came();
        }
        read
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
