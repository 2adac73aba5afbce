//! Waits for the servers' gRPC port, which consul-dataplane needs: an obstacle is reported here, in
//! mesh-init's log, rather than later in Envoy's.

#[cfg(feature = "tls")]
pub(super) mod over_tls;
mod question;

use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    discovery::{discover, transient},
    servers::until_connected,
};
use crate::{
    Result,
    config::{ServersConfig, TlsSettings},
};
pub(super) use question::server_name;
use question::{LIMIT, judge, question};

/// Waits until one of the servers answers gRPC, trying all addresses repeatedly. Each failure is
/// logged with its address and cause.
///
/// `ca_pem` is an authority's PEM text; it replaces the configured file.
///
/// # Errors
///
/// [`File`](crate::Error::File) and [`Input`](crate::Error::Input) for an unusable authority,
/// `Input` for hosts that can never give an address and for TLS without the feature,
/// [`Stopped`](crate::Error::Stopped) when `stop` is cancelled.
///
/// Source: consul-server-connection-manager 0.1, which connects before consul-ecs does anything.
pub(super) async fn wait(
    servers: &ServersConfig,
    ca_pem: Option<&str>,
    stop: &CancellationToken,
) -> Result<()> {
    let tls = servers.grpc_tls();
    let wire = wire(&tls, ca_pem).await?;
    let probe = &Probe { port: servers.grpc.port, tls, wire };
    until_connected(stop, || async move {
        let mut last = None;
        // Resolved for each round: a name or command may give other servers by then.
        for address in discover(&servers.hosts).await? {
            match probe.ask(&address).await {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    last = Some(format!("gRPC at {}: {problem}", probe.shown(&address)));
                }
            }
        }
        Err(transient(last.unwrap_or_else(|| format!("{:?} gives no address", servers.hosts))))
    })
    .await
}

/// Settings that all servers share.
struct Probe {
    port: u16,
    tls: TlsSettings,
    wire: Wire,
}

enum Wire {
    Plain,
    #[cfg(feature = "tls")]
    Tls(over_tls::OverTls),
}

#[cfg(feature = "tls")]
async fn wire(tls: &TlsSettings, ca_pem: Option<&str>) -> Result<Wire> {
    if !tls.enabled {
        return Ok(Wire::Plain);
    }
    over_tls::OverTls::new(tls, ca_pem).await.map(Wire::Tls)
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn wire(tls: &TlsSettings, _ca_pem: Option<&str>) -> Result<Wire> {
    crate::tls::check("consulServers.grpc.tls", tls.enabled)?;
    Ok(Wire::Plain)
}

impl Probe {
    fn shown(&self, address: &str) -> String {
        let port = self.port;
        let name = server_name(&self.tls);
        let expected = name.map(|name| format!(" (as {name})")).unwrap_or_default();
        if address.contains(':') {
            format!("[{address}]:{port}{expected}")
        } else {
            format!("{address}:{port}{expected}")
        }
    }

    /// Asks one server; the error describes the obstacle.
    async fn ask(&self, address: &str) -> Result<(), String> {
        match &self.wire {
            Wire::Plain => timeout(LIMIT, plain(address, self.port))
                .await
                .unwrap_or_else(|_elapsed| Err(format!("no answer within {LIMIT:?}"))),
            #[cfg(feature = "tls")]
            Wire::Tls(over_tls) => over_tls.ask(address, self.port).await,
        }
    }
}

/// Asks over a connection of its own.
async fn plain(address: &str, port: u16) -> Result<(), String> {
    let chain = |error: hyper::Error| consul_watch::error_chain(&error);
    let stream = TcpStream::connect((address, port)).await.map_err(|error| error.to_string())?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(chain)?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let request = question(&format!("http://{host}:{port}"))?.map(Full::new);
    tokio::pin! {
        let answer = sender.send_request(request);
    }
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection may hold the answer already; it is still to be taken.
        _ended = connection => answer.await,
    };
    let answer = answer.map_err(chain)?;
    judge(answer.status(), answer.headers())
}
