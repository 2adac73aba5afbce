//! TLS for the double: an authority of its own, a certificate for `localhost`, and a listener.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
    server::TlsStream,
};

/// Certificate of a double.
#[derive(Clone)]
pub(super) struct Certificate {
    /// Certificate of the authority, as PEM.
    pub(super) authority: String,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

impl Certificate {
    /// Makes an authority, and a certificate of it for `localhost` and 127.0.0.1.
    pub(super) fn generate() -> io::Result<Self> {
        let authority_key = KeyPair::generate().map_err(io::Error::other)?;
        let mut authority = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key).map_err(io::Error::other)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).map_err(io::Error::other)?;
        let certificate = certificate.signed_by(&key, &issuer).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(io::Error::other)?;
        Ok(Self { authority: authority_pem, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

/// Listener that gives out connections whose handshake is done.
pub(super) struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    /// Ends with the listener.
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, certificate: &Certificate) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(16);
        let acceptor = certificate.acceptor.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, acceptor, sender));
        Ok(Self { address, ready, _accepting: accepting })
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, peer)) = accepted else { continue };
                let (acceptor, ready) = (acceptor.clone(), ready.clone());
                // Apart, so that a slow handshake keeps nobody else waiting.
                handshakes.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await
                        && ready.send((stream, peer)).await.is_err()
                    {
                        tracing::trace!("the double's server has ended");
                    }
                });
            }
            Some(_) = handshakes.join_next() => {}
        }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // Only after the task has ended, which it does with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
