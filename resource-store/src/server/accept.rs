//! Taking connections: how many, how long they may be silent, and TLS.
//!
//! | a connection | ends |
//! |---|---|
//! | beyond the limit, while others have not said anything yet | the oldest of those ends in its place |
//! | beyond the limit, all others are at work | at once |
//! | that has not finished TLS, or not sent the first 24 bytes, in time | then |
//! | at work | by the keepalive of HTTP/2, or the time limits of HTTP/1 |
//!
//! 24 bytes are the preface of HTTP/2, which comes before anything else. Where
//! the system has no descriptor left, one that is kept for it takes the next
//! connection, to end it: left in the queue it would wake the listener for ever.

use std::{
    collections::BTreeMap,
    fs::File,
    future::Future as _,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Number of bytes of the preface of HTTP/2.
const PREFACE: usize = 24;
/// Time to wait after a listener failed for want of resources.
const PAUSE: Duration = Duration::from_millis(100);
/// The same warning is not repeated within this time.
const QUIET: Duration = Duration::from_secs(10);

/// The certificates in use, which may be replaced while the server runs.
pub(super) type CurrentTls = Arc<ArcSwap<rustls::ServerConfig>>;

/// Takes connections and gives those that are ready for HTTP.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<CurrentTls>,
    pub(super) most: usize,
    pub(super) handshake_timeout: Duration,
}

impl Acceptor {
    /// Runs until `stop`, or until nobody takes what is ready.
    pub(super) async fn run(
        self,
        ready: mpsc::Sender<io::Result<Connection>>,
        stop: CancellationToken,
    ) {
        let places = Arc::new(Places::default());
        let mut handshakes = JoinSet::new();
        let mut reserve = Reserve::new();
        let mut complaints = Complaints::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = handshakes.join_next() => continue,
                () = stop.cancelled() => return,
                () = ready.closed() => return,
            };
            match accepted {
                Ok((socket, _)) => {
                    let Some(place) = places.take(self.most) else {
                        complaints.warn("as many connections as are allowed; a new one is ended");
                        continue;
                    };
                    let (tls, ready) = (self.tls.clone(), ready.clone());
                    let limit = self.handshake_timeout;
                    handshakes.spawn(async move {
                        if let Some(connection) = shake_hands(socket, tls, place, limit).await {
                            // If nobody takes it, the server ends.
                            drop(ready.send(Ok(connection)).await);
                        }
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    complaints.warn(&format!("cannot take a connection: {error}"));
                    reserve.end_one(&self.listener);
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Returns `true` if the next connection may well be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

async fn shake_hands(
    socket: TcpStream,
    tls: Option<CurrentTls>,
    place: Place,
    limit: Duration,
) -> Option<Connection> {
    let deadline = Instant::now() + limit;
    // A client that is gone already is found out when it is read from.
    drop(socket.set_nodelay(true));
    let info = socket.connect_info();
    let evicted = place.evicted.clone();
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(socket),
        Some(tls) => {
            let accepting = TlsAcceptor::from(tls.load_full()).accept(socket);
            let accepted = tokio::select! {
                accepted = timeout(limit, accepting) => accepted,
                () = evicted.cancelled() => return None,
            };
            match accepted {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(error)) => {
                    tracing::debug!(error = %error, peer = ?info.remote_addr(), "TLS failed");
                    return None;
                }
                Err(_elapsed) => return None,
            }
        }
    };
    let fresh = Fresh {
        deadline: Box::pin(tokio::time::sleep_until(deadline)),
        evicted: Box::pin(evicted.cancelled_owned()),
        read: 0,
    };
    Some(Connection { stream, info, fresh: Some(fresh), place })
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that HTTP is spoken on.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    info: TcpConnectInfo,
    /// What ends it as long as it has not said enough.
    fresh: Option<Fresh>,
    place: Place,
}

struct Fresh {
    deadline: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    read: usize,
}

impl Connection {
    fn settle(&mut self) {
        self.fresh = None;
        self.place.settle();
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(fresh) = &mut self.fresh else { return Ok(()) };
        let over = fresh.deadline.as_mut().poll(cx).is_ready()
            || fresh.evicted.as_mut().poll(cx).is_ready();
        if over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.poll_patience(cx)?;
        let before = into.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, into);
        let settled = this.fresh.as_mut().is_some_and(|fresh| {
            fresh.read += into.filled().len() - before;
            fresh.read >= PREFACE
        });
        if settled {
            this.settle();
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
        // An answer to something shorter than the preface.
        if self.fresh.is_some() && matches!(polled, Poll::Ready(Ok(1..))) {
            self.settle();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

/// The connections that there are.
#[derive(Debug, Default)]
struct Places {
    state: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    next: u64,
    /// Those that have not said enough yet, the oldest first.
    fresh: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection; dropping it gives it back.
#[derive(Debug)]
struct Place {
    number: u64,
    evicted: CancellationToken,
    places: Arc<Places>,
}

impl Places {
    fn state(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, if need be that of one who has not said anything.
    fn take(self: &Arc<Self>, most: usize) -> Option<Place> {
        let mut state = self.state();
        if state.count >= most {
            let (_, silent) = state.fresh.pop_first()?;
            silent.cancel();
        }
        let (number, evicted) = (state.next, CancellationToken::new());
        state.next += 1;
        state.count += 1;
        state.fresh.insert(number, evicted.clone());
        drop(state);
        Some(Place { number, evicted, places: Arc::clone(self) })
    }
}

impl Place {
    /// From now on it is not taken by another one.
    fn settle(&self) {
        self.places.state().fresh.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.count -= 1;
        state.fresh.remove(&self.number);
    }
}

/// A descriptor that is kept for when there is no other.
#[derive(Debug)]
struct Reserve(Option<File>);

impl Reserve {
    fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Ends a connection that waits, in place of leaving it in the queue.
    fn end_one(&mut self, listener: &TcpListener) {
        self.0 = None;
        let mut nothing = Context::from_waker(std::task::Waker::noop());
        // Dropping it ends it.
        drop(listener.poll_accept(&mut nothing));
        *self = Self::new();
    }
}

/// Warnings that come no more often than a person can read.
#[derive(Debug, Default)]
struct Complaints {
    last: Option<Instant>,
    left_out: u64,
}

impl Complaints {
    fn warn(&mut self, text: &str) {
        if self.last.is_some_and(|last| last.elapsed() < QUIET) {
            self.left_out += 1;
            return;
        }
        tracing::warn!(left_out = self.left_out, "{text}");
        *self = Self { last: Some(Instant::now()), left_out: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let places = Arc::new(Places::default());
        let first = places.take(2).unwrap();
        let second = places.take(2).unwrap();
        first.settle();
        let third = places.take(2).unwrap();
        assert!(!first.evicted.is_cancelled() && second.evicted.is_cancelled());
        third.settle();
        assert!(places.take(2).is_none(), "all others are at work");
        drop((first, second, third));
        assert!(places.take(1).is_some());
        assert_eq!(places.state().count, 0);
    }
}
