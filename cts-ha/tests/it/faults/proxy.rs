//! A network between one process and Consul, that can be cut.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Up,
    /// Nothing passes. Afterwards it arrives late, as TCP sends it again.
    Cut,
    /// Nothing passes, and connections of that time are never heard of again.
    Lost,
    /// Requests arrive at once, and each part of an answer so much later.
    SlowAnswers(Duration),
}

/// Where a connection's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// Forwards connections to one address.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    network: watch::Sender<Network>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let network = watch::Sender::new(Network::Up);
        let state = network.subscribe();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (target, state) = (target.clone(), state.clone());
                connections.spawn(async move { forward(client, &target, state).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, network, accepting }
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(client: TcpStream, target: &str, mut state: watch::Receiver<Network>) {
    if !passable(&mut state).await {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pump(Direction::Request, from_client, to_server, state.clone()) => {}
        () = pump(Direction::Answer, from_server, to_client, state) => {}
    }
}

/// Waits until the network is up; `false` when the connection is lost by then.
async fn passable(state: &mut watch::Receiver<Network>) -> bool {
    let mut lost = false;
    loop {
        match *state.borrow_and_update() {
            Network::Up | Network::SlowAnswers(_) => return !lost,
            Network::Cut => {}
            Network::Lost => lost = true,
        }
        if state.changed().await.is_err() {
            return false;
        }
    }
}

async fn pump(
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<Network>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            changed = state.changed() => {
                // A cut counts also while nothing is sent.
                if changed.is_err() || !passable(&mut state).await {
                    return;
                }
                continue;
            }
        };
        let network = *state.borrow();
        if let (Network::SlowAnswers(late), Direction::Answer) = (network, direction) {
            sleep(late).await;
        }
        if count == 0
            || !passable(&mut state).await
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}
