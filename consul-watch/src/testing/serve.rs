//! `ServedConsul`: the double on a port of 127.0.0.1, with Consul's limit of connections.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::TestConsul;
use crate::{Client, ClientConfig};

/// Largest request that is read; Consul's own limit for values is far below.
const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// Time that a refused connection has to take its answer.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
const TOO_MANY: &str =
    "Your IP is issuing too many concurrent connections, please rate limit your calls\n";

/// A [`TestConsul`] on a socket. Dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct ServedConsul {
    consul: TestConsul,
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
    _server: AbortOnDropHandle<()>,
}

impl TestConsul {
    /// Serves this Consul on a free port of 127.0.0.1 until the result is dropped,
    /// for programs in any language.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::testing::TestConsul;
    /// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    ///
    /// let served = TestConsul::new().serve().await?;
    /// // What another program is given as CONSUL_HTTP_ADDR.
    /// let mut connection = tokio::net::TcpStream::connect(served.address()).await?;
    /// let request = "PUT /v1/kv/color HTTP/1.1\r\nHost: consul\r\n\
    ///     Connection: close\r\nContent-Length: 4\r\n\r\nblue";
    /// connection.write_all(request.as_bytes()).await?;
    /// let mut answer = String::new();
    /// connection.read_to_string(&mut answer).await?;
    /// assert!(answer.starts_with("HTTP/1.1 200 OK"));
    /// assert!(answer.ends_with("true"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn serve(&self) -> std::io::Result<ServedConsul> {
        ServedConsul::start(self.clone()).await
    }
}

#[derive(Clone)]
struct Shared {
    consul: TestConsul,
    stop: CancellationToken,
}

impl ServedConsul {
    pub(super) async fn start(consul: TestConsul) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let listener = LimitedListener {
            listener,
            open: Arc::clone(&connections),
            limit: consul.connection_limit(),
            silent: consul.refuses_silently(),
        };
        let stop = CancellationToken::new();
        let shared = Shared { consul: consul.clone(), stop: stop.clone() };
        let router = Router::new().fallback(answer).with_state(shared);
        let stopped = stop.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await
            {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the double's server has ended"
                );
            }
        });
        Ok(Self { consul, address, connections, stop, _server: AbortOnDropHandle::new(server) })
    }

    /// The Consul behind the socket.
    pub fn consul(&self) -> &TestConsul {
        &self.consul
    }

    /// Connections that are open at the moment.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// `host:port`, as `CONSUL_HTTP_ADDR` takes it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A client over the socket. It sends the double's management token, if there is one.
    ///
    /// # Panics
    ///
    /// If the machine's TLS set-up cannot be read.
    #[expect(clippy::expect_used, reason = "a test double tells a broken machine at once")]
    pub fn client(&self) -> Client {
        let config = ClientConfig {
            address: self.address(),
            token: self.consul.management_token(),
            ..ClientConfig::default()
        };
        Client::new(config).expect("a client over plain HTTP")
    }
}

impl Drop for ServedConsul {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        return cut();
    };
    tokio::select! {
        answer = shared.consul.handle(http::Request::from_parts(parts, body)) => {
            answer.map_or_else(|_cut| cut(), |answer| answer.map(Body::from))
        }
        () = shared.stop.cancelled() => cut(),
    }
}

/// An answer whose body breaks off, which is how a connection is cut from in here.
fn cut() -> Response {
    let broken = futures::stream::once(async {
        Err::<Bytes, _>(std::io::Error::other("the connection is cut"))
    });
    Response::new(Body::from_stream(broken))
}

/// Takes connections as an agent does, whose clients share one address: past
/// the limit they are closed, since Consul 1.9 with an answer first.
#[derive(Debug)]
struct LimitedListener {
    listener: TcpListener,
    open: Arc<AtomicUsize>,
    limit: Option<usize>,
    silent: bool,
}

impl axum::serve::Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else {
                // The machine is out of descriptors: others have to close first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let open = Open::new(&self.open);
            if self.limit.is_none_or(|limit| self.open.load(Ordering::Relaxed) <= limit) {
                return (Connection { stream, _open: open }, address);
            }
            tracing::debug!(%address, "past the limit of connections");
            if !self.silent {
                tokio::spawn(tokio::time::timeout(REFUSAL_LIMIT, refuse(stream)));
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Tells a connection that there are too many.
async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{TOO_MANY}",
        TOO_MANY.len()
    );
    let told = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing over an unread request would take the answer back.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    if let Err(error) = told.await {
        tracing::debug!(%error, "a refused connection went first");
    }
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that counts while it is open.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    _open: Open,
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
