//! A TCP connection that can be cut and slowed.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

const CHUNK: usize = 16 << 10;

/// The treatment of the bytes of one direction by a [`Link`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// Bytes pass.
    #[default]
    Open,
    /// Bytes pass, up to 16 KiB at a time, each after this time.
    Slow(Duration),
    /// Bytes wait until the direction is open again, as packets that a network
    /// loses are sent again.
    Stopped,
}

/// The treatment of a connection's bytes by a [`Link`], for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flows {
    /// From the one who connects to the target. While it is stopped, no
    /// connection comes about.
    pub there: Flow,
    /// From the target to the one who connects.
    pub back: Flow,
}

impl Flows {
    /// Nothing passes.
    pub const STOPPED: Self = Self { there: Flow::Stopped, back: Flow::Stopped };
}

/// Decides on a connection, by where it comes from.
type Rule = dyn Fn(SocketAddr) -> watch::Receiver<Flows> + Send + Sync;

/// A proxy on a free port of 127.0.0.1 before a TCP server, whose connections
/// can be held up, slowed and cut. Dropping it ends them all.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    flows: watch::Sender<Flows>,
    cuts: watch::Sender<u64>,
    _serving: AbortOnDropHandle<()>,
}

impl Link {
    /// Passes all connections to `target`.
    ///
    /// # Errors
    ///
    /// If the system gives no port.
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        let flows = watch::Sender::new(Flows::default());
        let all = flows.clone();
        Self::start(target, flows, Arc::new(move |_| all.subscribe())).await
    }

    /// Passes all connections to `target`; what happens to one is decided when
    /// it comes about, by the address that it comes from, and changes with what
    /// the rule gave. [`Link::set`] has no effect.
    ///
    /// # Errors
    ///
    /// If the system gives no port.
    pub async fn with_rule(
        target: SocketAddr,
        rule: impl Fn(SocketAddr) -> watch::Receiver<Flows> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start(target, watch::Sender::new(Flows::default()), Arc::new(rule)).await
    }

    async fn start(
        target: SocketAddr,
        flows: watch::Sender<Flows>,
        rule: Arc<Rule>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let cuts = watch::Sender::new(0);
        let serving = tokio::spawn(serve(listener, target, rule, cuts.subscribe()));
        Ok(Self { address, flows, cuts, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Returns the address to connect to instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens to all bytes from now on.
    pub fn set(&self, flows: Flows) {
        self.flows.send_replace(flows);
    }

    /// Ends all connections. New ones are taken.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn serve(
    listener: TcpListener,
    target: SocketAddr,
    rule: Arc<Rule>,
    mut cuts: watch::Receiver<u64>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((socket, from)) = accepted {
                    connections.spawn(pass(socket, target, rule(from)));
                }
            }
            changed = cuts.changed() => {
                if changed.is_err() {
                    return;
                }
                connections.abort_all();
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn pass(client: TcpStream, target: SocketAddr, mut flows: watch::Receiver<Flows>) {
    let both_pass = |flows: &Flows| flows.there != Flow::Stopped && flows.back != Flow::Stopped;
    if flows.wait_for(both_pass).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = copy(from_client, to_server, flows.clone(), |flows| flows.there);
    let back = copy(from_server, to_client, flows, |flows| flows.back);
    // When one direction fails, both end.
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut flows: watch::Receiver<Flows>,
    direction: fn(&Flows) -> Flow,
) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let open = |flows: &Flows| direction(flows) != Flow::Stopped;
        let Ok(flow) = flows.wait_for(open).await.map(|flows| direction(&flows)) else { return };
        if let Flow::Slow(delay) = flow {
            tokio::time::sleep(delay).await;
        }
        let Some(chunk) = buffer.get(..read) else { return };
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.split();
                    tokio::io::copy(&mut from, &mut to).await.unwrap_or(0)
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn bytes_pass_wait_and_end() {
        let link = Link::to(echo().await).await.unwrap();
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        let mut answer = [0; 1];
        socket.write_all(b"a").await.unwrap();
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"a");

        link.set(Flows { back: Flow::Stopped, ..Flows::default() });
        socket.write_all(b"b").await.unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(50), socket.read_exact(&mut answer));
        assert!(waits.await.is_err(), "nothing comes back");
        link.set(Flows::default());
        let mut answer = [0; 1];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"b", "what waited comes");

        link.cut();
        assert!(matches!(socket.read(&mut answer).await, Ok(0) | Err(_)), "it ended");
    }
}
