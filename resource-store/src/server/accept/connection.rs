//! A connection, which ends when it has to or when its client takes nothing.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::places::{Handle, Place};

/// The beginning of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that HTTP is spoken on.
pub(in crate::server) struct Connection {
    stream: Box<dyn Stream>,
    info: TcpConnectInfo,
    /// Number of bytes of the preface that came; none once it is whole, or
    /// something else came.
    greeting: Option<usize>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Time for which the client may take nothing of what is sent.
    patience: Duration,
    /// Running since the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    place: Place,
}

impl Connection {
    pub(super) fn new(
        stream: Box<dyn Stream>,
        info: TcpConnectInfo,
        place: Place,
        patience: Duration,
    ) -> Self {
        let ended = Box::pin(place.ended.clone().cancelled_owned());
        Self { stream, info, greeting: Some(0), ended, patience, stalled: None, place }
    }

    fn greet(&mut self, bytes: &[u8]) {
        let Some(seen) = self.greeting else { return };
        let rest = PREFACE.get(seen..).unwrap_or_default();
        let compared = rest.len().min(bytes.len());
        if rest.get(..compared) != bytes.get(..compared) {
            self.greeting = None;
        } else if compared == rest.len() {
            self.greeting = None;
            self.place.handle().greeted();
        } else {
            self.greeting = Some(seen + compared);
        }
    }

    /// Ends the connection if its client takes nothing for too long.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, into);
        if this.greeting.is_some()
            && let Some(new) = into.filled().get(before..)
        {
            this.greet(new);
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_pending() {
            self.poll_patience(cx)?;
        } else {
            self.stalled = None;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if polled.is_pending() {
            self.poll_patience(cx)?;
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        if polled.is_pending() {
            self.poll_patience(cx)?;
        }
        polled
    }
}

/// The properties of a connection that its requests know.
#[derive(Debug, Clone)]
pub(in crate::server) struct ConnectionInfo {
    pub(in crate::server) tcp: TcpConnectInfo,
    pub(in crate::server) connection: Handle,
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        ConnectionInfo { tcp: self.info.clone(), connection: self.place.handle() }
    }
}
