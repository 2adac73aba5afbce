use std::net::SocketAddr;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::TestConsul;
use crate::{Client, ClientConfig};

/// Largest request that is read; Consul's own limit for values is far below.
const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// A [`TestConsul`] on a socket. Dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct ServedConsul {
    consul: TestConsul,
    address: SocketAddr,
    stop: CancellationToken,
    _server: AbortOnDropHandle<()>,
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
        Ok(Self { consul, address, stop, _server: AbortOnDropHandle::new(server) })
    }

    /// The Consul behind the socket.
    pub fn consul(&self) -> &TestConsul {
        &self.consul
    }

    /// `host:port`, as `CONSUL_HTTP_ADDR` takes it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A client over the socket.
    ///
    /// # Panics
    ///
    /// If the machine's TLS set-up cannot be read.
    #[expect(clippy::expect_used, reason = "a test double tells a broken machine at once")]
    pub fn client(&self) -> Client {
        let config = ClientConfig { address: self.address(), ..ClientConfig::default() };
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
