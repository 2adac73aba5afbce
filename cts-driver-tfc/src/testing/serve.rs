//! The double on a socket, which can go away and come back.

use std::net::SocketAddr;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::TestTfc;

/// Largest request that is read, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// [`TestTfc`] on a socket. Dropping it closes the socket.
#[derive(Debug)]
pub struct ServedTfc {
    tfc: TestTfc,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl ServedTfc {
    pub(super) async fn start(tfc: TestTfc, port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let stop = watch::Sender::new(false);
        let mut served = Self { tfc, address, stop, server: None };
        served.accept(listener);
        Ok(served)
    }

    fn accept(&mut self, listener: TcpListener) {
        self.stop.send_replace(false);
        let router =
            Router::new().fallback(answer).with_state((self.tfc.clone(), self.stop.subscribe()));
        let mut stop = self.stop.subscribe();
        self.server = Some(tokio::spawn(async move {
            let served = axum::serve(listener, router).into_future();
            tokio::select! {
                served = served => {
                    if let Err(error) = served {
                        tracing::error!(error = &error as &dyn std::error::Error, "the double's server has ended");
                    }
                }
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }));
    }

    /// Returns the platform behind the socket.
    pub fn tfc(&self) -> &TestTfc {
        &self.tfc
    }

    /// Returns the value of `hostname`: `http://127.0.0.1:PORT`.
    pub fn hostname(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Accepts no connection until [`ServedTfc::resume`]; the double's data stays.
    pub async fn pause(&mut self) {
        self.stop.send_replace(true);
        if let Some(server) = self.server.take()
            && let Err(error) = server.await
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the double's server has ended"
            );
        }
    }

    /// Serves again, on the same port.
    ///
    /// # Errors
    ///
    /// The error of the system if somebody else has taken the port.
    pub async fn resume(&mut self) -> std::io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.accept(listener);
        Ok(())
    }
}

impl Drop for ServedTfc {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

async fn answer(
    State((tfc, stopped)): State<(TestTfc, watch::Receiver<bool>)>,
    request: Request,
) -> Response {
    // Connections outlive the listener.
    if *stopped.borrow() {
        let mut away = Response::new(Body::from("no healthy upstream"));
        *away.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        away.headers_mut()
            .insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
        return away;
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_LIMIT).await.unwrap_or_default();
    let answer = tfc.handle(&http::Request::from_parts(parts, body));
    answer.map(Body::from)
}
