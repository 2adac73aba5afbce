//! A proxy in front of a Consul, that can fail in ways a Consul cannot be told to.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// What the proxy does with its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes everything on.
    Pass,
    /// Cuts all connections; answers 500 to each request of new ones.
    Errors,
    /// Passes nothing on any more and says nothing: each end believes that the
    /// other one lives. These connections stay dead.
    Swallow,
}

/// What went through a [`Proxy`].
#[derive(Debug, Default)]
struct Figures {
    requests: AtomicU64,
    open: AtomicUsize,
    most: AtomicUsize,
}

/// Listens on a free port of 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    figures: Arc<Figures>,
    stop: CancellationToken,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// A proxy in front of `host:port`.
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = watch::Sender::new(Mode::Pass);
        let (figures, stop) = (Arc::<Figures>::default(), CancellationToken::new());
        let (modes, counts, stopped) = (mode.clone(), Arc::clone(&figures), stop.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _from)) = listener.accept().await {
                let line = Line { target: target.clone(), figures: Arc::clone(&counts) };
                let (modes, stopped) = (modes.subscribe(), stopped.clone());
                tokio::spawn(async move {
                    // A line that breaks is what this is for.
                    let _end = stopped.run_until_cancelled(line.run(client, modes)).await;
                });
            }
        });
        Self { address, mode, figures, stop, _task: AbortOnDropHandle::new(task) }
    }

    /// `host:port`, as `CONSUL_HTTP_ADDR` takes it.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Requests that came in, answered or not.
    pub(crate) fn requests(&self) -> u64 {
        self.figures.requests.load(Ordering::SeqCst)
    }

    /// The most connections that there were at once.
    pub(crate) fn most(&self) -> usize {
        self.figures.most.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// One connection.
struct Line {
    target: String,
    figures: Arc<Figures>,
}

impl Line {
    async fn run(self, client: TcpStream, mut modes: watch::Receiver<Mode>) -> io::Result<()> {
        let figures = Arc::clone(&self.figures);
        let open = figures.open.fetch_add(1, Ordering::SeqCst) + 1;
        figures.most.fetch_max(open, Ordering::SeqCst);
        let end = self.carry(client, &mut modes).await;
        figures.open.fetch_sub(1, Ordering::SeqCst);
        end
    }

    async fn carry(&self, client: TcpStream, modes: &mut watch::Receiver<Mode>) -> io::Result<()> {
        let mode = *modes.borrow_and_update();
        match mode {
            Mode::Errors => return self.refuse(client, modes).await,
            Mode::Swallow => return swallow(client).await,
            Mode::Pass => {}
        }
        let server = match TcpStream::connect(&self.target).await {
            Ok(server) => server,
            Err(_dead) => return self.lose(client).await,
        };
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let ((mut from_client, mut to_client), (from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let mut from_server = from_server;
        let mode = tokio::select! {
            end = self.requests(&mut from_client, &mut to_server) => return end,
            end = tokio::io::copy(&mut from_server, &mut to_client) => return end.map(drop),
            mode = other_mode(modes) => mode,
        };
        if mode == Mode::Swallow {
            // Nobody reads, nobody writes, nobody closes.
            std::future::pending::<()>().await;
        }
        drop((from_client, to_client, from_server, to_server));
        Ok(())
    }

    /// Passes requests on and counts them. One that is sent in a piece begins a piece.
    async fn requests(&self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            self.count(&buffer[..count]);
            to.write_all(&buffer[..count]).await?;
        }
    }

    fn count(&self, piece: &[u8]) {
        if [&b"GET "[..], b"PUT ", b"DELETE "].iter().any(|method| piece.starts_with(method)) {
            self.figures.requests.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts what a dead server cannot answer, and cuts the connection.
    async fn lose(&self, mut client: TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let count = client.read(&mut buffer).await?;
        self.count(&buffer[..count]);
        client.set_zero_linger()
    }

    async fn refuse(&self, client: TcpStream, modes: &mut watch::Receiver<Mode>) -> io::Result<()> {
        const ANSWER: &[u8] =
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 17\r\n\r\nNo cluster leader";
        let (mut from, mut to) = client.into_split();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = tokio::select! {
                count = from.read(&mut buffer) => count?,
                _mode = other_mode(modes) => return Ok(()),
            };
            if count == 0 {
                return Ok(());
            }
            self.count(&buffer[..count]);
            to.write_all(ANSWER).await?;
        }
    }
}

/// Keeps a connection and does nothing with it.
async fn swallow(client: TcpStream) -> io::Result<()> {
    std::future::pending::<()>().await;
    drop(client);
    Ok(())
}

async fn other_mode(modes: &mut watch::Receiver<Mode>) -> Mode {
    if modes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    *modes.borrow_and_update()
}
