//! TLS of the connections that other nodes make, and which node a certificate names.
//!
//! The certificates may be replaced while the node runs. A certificate that the
//! authority signed is not enough: it has to have the name of a node, so that an
//! authority which signs others, too, can be used.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures::Stream;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self,
        client::verify_server_name,
        pki_types::{CertificateDer, ServerName},
        server::ParsedCertificate,
    },
    server::TlsStream,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Error, Result, raft::config::PeerTls},
    server_tls::{self, ServerTls},
};

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Number of handshakes at a time; more have to wait.
const HANDSHAKES: usize = 64;
/// The wait before the next connection is taken after one that failed, which happens
/// when there is no descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The certificates that a connection has shown, that of the caller first; none without TLS.
pub(crate) type Shown = Option<Arc<Vec<CertificateDer<'static>>>>;

/// The certificate that a node shows to those who connect to it. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    current: Arc<ArcSwap<rustls::ServerConfig>>,
}

impl Certificates {
    /// # Errors
    ///
    /// If a certificate or the key is malformed, or they do not belong together.
    pub(crate) fn new(tls: &PeerTls) -> Result<Self> {
        Ok(Self { current: Arc::new(ArcSwap::from(configuration(tls)?)) })
    }

    /// Shows other certificates from now on; connections that there are go on.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; what there was stays then.
    pub(crate) fn replace(&self, tls: &PeerTls) -> Result<()> {
        self.current.store(configuration(tls)?);
        Ok(())
    }

    /// Takes connections until `stop`. A slow handshake holds up no other one.
    pub(crate) fn accept(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> impl Stream<Item = std::io::Result<TlsStream<TcpStream>>> {
        // The server takes finished handshakes from here, so that none of its own tasks waits for one.
        let (ready, accepted) = mpsc::channel(HANDSHAKES);
        tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(HANDSHAKES));
            let accepting = async {
                loop {
                    // Before the connection is taken: those beyond wait in the list of the system, not in memory.
                    let place = Arc::clone(&places).acquire_owned().await;
                    let (socket, from) = match listener.accept().await {
                        Ok(accepted) => accepted,
                        Err(error) => {
                            tracing::warn!(%error, "a connection of another node was not taken");
                            tokio::time::sleep(ACCEPT_AGAIN).await;
                            continue;
                        }
                    };
                    // Read for each connection, so that renewed certificates are shown to the next one.
                    let acceptor = TlsAcceptor::from(self.current.load_full());
                    let ready = ready.clone();
                    tokio::spawn(async move {
                        match timeout(HANDSHAKE, secured(acceptor, socket)).await {
                            Ok(Ok(stream)) => ready.send(Ok(stream)).await.unwrap_or_default(),
                            Ok(Err(error)) => {
                                tracing::warn!(%from, %error, "a caller did not prove who it is");
                            }
                            Err(_too_long) => tracing::debug!(%from, "a handshake took too long"),
                        }
                        drop(place);
                    });
                }
            };
            tokio::select! {
                () = accepting => {}
                () = stop.cancelled() => {}
            }
        });
        ReceiverStream::new(accepted)
    }
}

async fn secured(
    acceptor: TlsAcceptor,
    socket: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    socket.set_nodelay(true)?;
    acceptor.accept(socket).await
}

fn configuration(tls: &PeerTls) -> Result<Arc<rustls::ServerConfig>> {
    let mut server = ServerTls::new(tls.certificate_pem.clone(), tls.key_pem.clone());
    server.client_ca_pem = Some(tls.ca_pem.clone());
    server_tls::configuration(&server).map(Arc::new).map_err(|error| {
        Error::failed("configure TLS between nodes", crate::error_chain::error_chain(&*error))
    })
}

/// Returns `true` if the certificate is for that host.
pub(crate) fn is_for(shown: &[CertificateDer<'static>], host: &str) -> bool {
    // The caller's own comes first; the others only lead to the authority.
    let Some(certificate) = shown.first() else { return false };
    let (Ok(parsed), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// The host of an address, without the brackets of IPv6.
pub(crate) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_hosts_that_it_names_and_no_others() {
        let names = vec!["a.cluster".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let shown = vec![made.cert.der().clone()];
        for address in ["a.cluster:1", "127.0.0.1:8602", "[::1]:8602"] {
            assert!(is_for(&shown, host(address)), "{address}");
        }
        for address in ["b.cluster:1", "127.0.0.2:1", "cluster:1", "x.a.cluster:1", ":1"] {
            assert!(!is_for(&shown, host(address)), "{address}");
        }
        assert!(!is_for(&[], "a.cluster"));
    }
}
