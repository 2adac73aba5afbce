//! The double on a socket, which can go away and come back.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use cts_driver_terraform::language::quote;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    TestTfc,
    route::OverTls,
    tls::{Certificate, TlsListener},
};

type BoxFuture = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// Largest request that is read, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// [`TestTfc`] on a socket. Dropping it closes the socket.
#[derive(Debug)]
pub struct ServedTfc {
    tfc: TestTfc,
    address: SocketAddr,
    certificate: Option<Certificate>,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl ServedTfc {
    pub(super) async fn start(tfc: TestTfc, port: u16) -> std::io::Result<Self> {
        Self::bind(tfc, port, None).await
    }

    pub(super) async fn start_tls(tfc: TestTfc) -> std::io::Result<Self> {
        Self::bind(tfc, 0, Some(Certificate::generate()?)).await
    }

    async fn bind(
        tfc: TestTfc,
        port: u16,
        certificate: Option<Certificate>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let stop = watch::Sender::new(false);
        let mut served = Self { tfc, address, certificate, stop, server: None };
        served.accept(listener)?;
        Ok(served)
    }

    fn accept(&mut self, listener: TcpListener) -> std::io::Result<()> {
        self.stop.send_replace(false);
        let state = Served {
            tfc: self.tfc.clone(),
            stopped: self.stop.subscribe(),
            tls: self.certificate.is_some(),
        };
        let router = Router::new().fallback(answer).with_state(state);
        let mut stop = self.stop.subscribe();
        let served: BoxFuture = match &self.certificate {
            None => Box::pin(axum::serve(listener, router).into_future()),
            Some(certificate) => {
                let listener = TlsListener::new(listener, certificate)?;
                Box::pin(axum::serve(listener, router).into_future())
            }
        };
        self.server = Some(tokio::spawn(async move {
            tokio::select! {
                served = served => {
                    if let Err(error) = served {
                        tracing::error!(error = &error as &dyn std::error::Error, "the double's server has ended");
                    }
                }
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }));
        Ok(())
    }

    /// Returns the platform behind the socket.
    pub fn tfc(&self) -> &TestTfc {
        &self.tfc
    }

    /// Returns the value of the driver's `hostname`: `http://127.0.0.1:PORT`, or
    /// `https://localhost:PORT` over TLS.
    pub fn hostname(&self) -> String {
        match self.certificate {
            None => format!("http://{}", self.address),
            Some(_) => format!("https://{}", self.host()),
        }
    }

    /// Returns the value of `hostname` in a `cloud` block: `localhost:PORT`.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Returns the certificate of the authority to trust, as PEM, where it is served over TLS.
    pub fn authority(&self) -> Option<&str> {
        self.certificate.as_ref().map(|certificate| certificate.authority.as_str())
    }

    /// Writes what `terraform` or `tofu` needs to reach it into a folder, and returns the
    /// environment in which to run them: the CLI configuration with the token, the authority to
    /// trust, and no requests to anybody else for newer versions.
    ///
    /// The token is that of this moment; call it again after [`TestTfc::set_token`].
    ///
    /// # Errors
    ///
    /// The error of the system if a file cannot be written.
    pub fn terraform_environment(
        &self,
        folder: &Path,
    ) -> std::io::Result<Vec<(&'static str, PathBuf)>> {
        let (config, authority) = (folder.join("terraform.tfrc"), folder.join("authority.pem"));
        let (host, token) = (quote(&self.host()), quote(&self.tfc.token()));
        let text =
            format!("disable_checkpoint = true\ncredentials {host} {{\n  token = {token}\n}}\n");
        std::fs::write(&config, text)?;
        std::fs::write(&authority, self.authority().unwrap_or_default())?;
        Ok(vec![
            ("TF_CLI_CONFIG_FILE", config),
            ("SSL_CERT_FILE", authority),
            ("CHECKPOINT_DISABLE", "1".into()),
            ("TF_IN_AUTOMATION", "1".into()),
        ])
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
        self.accept(listener)
    }
}

impl Drop for ServedTfc {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

#[derive(Debug, Clone)]
struct Served {
    tfc: TestTfc,
    stopped: watch::Receiver<bool>,
    tls: bool,
}

async fn answer(State(served): State<Served>, request: Request) -> Response {
    // Connections outlive the listener.
    if *served.stopped.borrow() {
        let mut away = Response::new(Body::from("no healthy upstream"));
        *away.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        away.headers_mut()
            .insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
        return away;
    }
    let (mut parts, body) = request.into_parts();
    if served.tls {
        parts.extensions.insert(OverTls);
    }
    let body = to_bytes(body, BODY_LIMIT).await.unwrap_or_default();
    let answer = served.tfc.handle(&http::Request::from_parts(parts, body));
    answer.map(Body::from)
}
