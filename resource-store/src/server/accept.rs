//! Taking connections: how many, how long they may be silent, and TLS.
//!
//! Where the system has no descriptor left, a connection that does nothing makes
//! room for the next one. Where all are at work, a descriptor that is kept for it
//! takes the next one, to end it: left in the queue it would wake the listener for
//! ever.

mod connection;
mod places;

use std::{
    collections::HashMap, fs::File, io, net::SocketAddr, sync::Arc, task::Context, time::Duration,
};

use arc_swap::ArcSwap;
pub(super) use connection::{Connection, ConnectionInfo};
pub(super) use places::{Call, Limits, block};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, lookup_host},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected as _;

use self::{
    connection::Stream,
    places::{Full, Place, Places},
};

/// Time to wait after a listener failed for want of resources.
const PAUSE: Duration = Duration::from_millis(100);
/// The same warning is not repeated within this time.
const QUIET: Duration = Duration::from_secs(10);
/// Longest time between two looks for connections whose time is over.
const LOOK: Duration = Duration::from_secs(1);
/// Number of connections that the system holds until they are taken, unless it
/// allows fewer. What comes while so many wait tries again after a second, so that
/// one client with 128 connections at once, which is usual otherwise, delays others.
const BACKLOG: u32 = 4096;

/// The certificates in use, which may be replaced while the server runs.
pub(super) type CurrentTls = Arc<ArcSwap<rustls::ServerConfig>>;

/// Listens at the first of these addresses where this is possible.
pub(super) async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "it resolves to no address");
    for address in lookup_host(address).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows it would let others take the port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Takes connections and gives those that are ready for HTTP.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<CurrentTls>,
    pub(super) limits: Limits,
    /// Time for which a client may take nothing of what is sent.
    pub(super) patience: Duration,
}

impl Acceptor {
    /// Runs until `stop`, or until nobody takes what is ready.
    pub(super) async fn run(
        self,
        ready: mpsc::Sender<io::Result<Connection>>,
        stop: CancellationToken,
    ) {
        let places = Places::new(self.limits);
        let mut handshakes = JoinSet::new();
        let mut reserve = Reserve::new();
        let mut complaints = Complaints::default();
        // Late by at most a quarter of what is allowed.
        let shortest = self.limits.silent.min(self.limits.idle);
        let mut looks = interval((shortest / 4).clamp(Duration::from_millis(5), LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = handshakes.join_next() => continue,
                _ = looks.tick() => {
                    places.end_overdue(Instant::now());
                    continue;
                }
                () = stop.cancelled() => return,
                () = ready.closed() => return,
            };
            match accepted {
                Ok((socket, from)) => {
                    let place = match places.take(Some(from.ip())) {
                        Ok(place) => place,
                        Err(full) => {
                            complaints.warn(Complaint::of(full), &from.ip().to_string());
                            continue;
                        }
                    };
                    let (tls, ready, patience) = (self.tls.clone(), ready.clone(), self.patience);
                    handshakes.spawn(async move {
                        if let Some(connection) = shake_hands(socket, tls, place, patience).await {
                            // If nobody takes it, the server ends.
                            drop(ready.send(Ok(connection)).await);
                        }
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    complaints.warn(Complaint::Listener, &error.to_string());
                    let gone = places.freed();
                    if places.end_first() {
                        // Its descriptor is free once its task has run.
                        drop(timeout(PAUSE, gone).await);
                    } else {
                        reserve.end_one(&self.listener);
                        sleep(PAUSE).await;
                    }
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
    patience: Duration,
) -> Option<Connection> {
    // A client that is gone already is found out when it is read from.
    drop(socket.set_nodelay(true));
    let info = socket.connect_info();
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(socket),
        Some(tls) => {
            let accepting = TlsAcceptor::from(tls.load_full()).accept(socket);
            let accepted = tokio::select! {
                accepted = accepting => accepted,
                () = place.ended.cancelled() => return None,
            };
            match accepted {
                Ok(stream) => Box::new(stream),
                Err(error) => {
                    tracing::debug!(error = %error, peer = ?info.remote_addr(), "TLS failed");
                    return None;
                }
            }
        }
    };
    Some(Connection::new(stream, info, place, patience))
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

/// The limit about which the log complains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Complaint {
    Listener,
    Server,
    Address,
}

impl Complaint {
    fn of(full: Full) -> Self {
        match full {
            Full::Server => Self::Server,
            Full::Address => Self::Address,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Listener => "cannot take a connection; is the limit of open files too low?",
            Self::Server => "as many connections as are allowed are at work; a new one is ended",
            Self::Address => {
                "one address has as many connections at work as are allowed to it; a new one is ended"
            }
        }
    }
}

/// Warnings of each cause, no more often than a person can read.
#[derive(Debug, Default)]
struct Complaints {
    /// By cause, the time of the last one and the number of those left out since.
    told: HashMap<Complaint, (Instant, u64)>,
}

impl Complaints {
    fn warn(&mut self, complaint: Complaint, about: &str) {
        let now = Instant::now();
        let mut left_out = 0;
        if let Some((last, since)) = self.told.get_mut(&complaint) {
            if now.duration_since(*last) < QUIET {
                *since += 1;
                return;
            }
            left_out = *since;
        }
        tracing::warn!(about, left_out, "{}", complaint.text());
        self.told.insert(complaint, (now, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody takes them yet.
    #[tokio::test]
    async fn many_may_come_at_once() {
        let listener = listen("localhost:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..400 {
            let connected = timeout(Duration::from_secs(20), TcpStream::connect(address)).await;
            clients.push(connected.expect("it was kept waiting").unwrap());
        }
        assert!(listen(&address.to_string()).await.is_err(), "the port is taken");
    }
}
