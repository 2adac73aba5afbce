//! The phases of a connection, and the time that each may take.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, sleep_until},
};

use super::limits::{HEAD, IDLE};

/// The phase of a connection between two requests. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Phase(watch::Sender<At>);

#[derive(Debug, Clone, Copy)]
enum At {
    /// Nothing of the next request has come.
    Idle { since: Instant },
    /// A head is coming.
    Head { since: Instant },
    /// A request is being answered, for as long as that takes.
    Answering,
    /// It gave way to another connection, and takes no request any more.
    Cut,
}

impl Phase {
    /// A client that connects has a request.
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(At::Head { since: Instant::now() }))
    }

    /// Starts the time of a head afresh, after a handshake.
    pub(super) fn head(&self) {
        self.move_on(At::Head { since: Instant::now() });
    }

    /// A head is complete; `false` if the connection was cut before, so that the
    /// request must not take effect.
    pub(super) fn answering(&self) -> bool {
        self.move_on(At::Answering)
    }

    /// An answer is complete.
    pub(super) fn answered(&self) {
        self.move_on(At::Idle { since: Instant::now() });
    }

    /// Changes the phase, unless the connection was cut.
    fn move_on(&self, next: At) -> bool {
        self.0.send_if_modified(|at| {
            let goes_on = !matches!(at, At::Cut);
            if goes_on {
                *at = next;
            }
            goes_on
        })
    }

    fn bytes_came(&self) {
        self.0.send_if_modified(|at| {
            let first = matches!(at, At::Idle { .. });
            if first {
                *at = At::Head { since: Instant::now() };
            }
            first
        });
    }

    /// The time since which the client is waited for; `None` while it is answered.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        match *self.0.borrow() {
            At::Idle { since } | At::Head { since } => Some(since),
            At::Answering | At::Cut => None,
        }
    }

    /// Ends a connection that is waited for; `false` if a request is being answered.
    pub(super) fn cut(&self) -> bool {
        self.0.send_if_modified(|at| {
            let waiting = matches!(at, At::Idle { .. } | At::Head { .. });
            if waiting {
                *at = At::Cut;
            }
            waiting
        })
    }

    #[cfg(test)]
    pub(super) fn is_cut(&self) -> bool {
        matches!(*self.0.borrow(), At::Cut)
    }

    /// Waits until the client has kept the server waiting for too long, or the
    /// connection was cut.
    pub(super) async fn overdue(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let until = match *changes.borrow_and_update() {
                At::Idle { since } => Some(since + IDLE),
                At::Head { since } => Some(since + HEAD),
                At::Answering => None,
                At::Cut => return,
            };
            tokio::select! {
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
                // The sender is this phase itself, so it is there.
                _ = changes.changed() => {}
            }
        }
    }
}

/// A connection that reports to its [`Phase`] when bytes come.
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
