//! Connections to other nodes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tonic::{
    Code, Status,
    transport::{Channel, ClientTlsConfig, Endpoint, Server},
};

use super::status::from_status;
use crate::{
    backend::{Error, raft::config::PeerTls, store::sync::lock},
    client_tls::client_tls,
    error_chain::causes,
    pb::generated::{
        hashicorp::consul::internal::storage::raft::forwarding_service_client::ForwardingServiceClient,
        resource_store::peer::v1::peer_service_client::PeerServiceClient,
    },
};

/// The largest message that nodes take: a resource as large as they come, or
/// several small ones.
pub(crate) const MAX_MESSAGE: usize = 128 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Number of unanswered keepalive probes after which a connection is given up.
const KEEPALIVES: u32 = 2;
const SERVER_KEEPALIVE: Duration = Duration::from_secs(10);
/// Flow control window of one call in bytes: enough that large messages are not
/// slow.
const WINDOW: u32 = 4 << 20;
/// Flow control window of all calls of a connection: one that nobody reads leaves
/// room for the others.
const ALL_WINDOWS: u32 = 4 * WINDOW;

/// Connections to other nodes, one for each address. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    tls: Arc<ArcSwapOption<ClientTlsConfig>>,
    open: Arc<Mutex<HashMap<String, Channel>>>,
}

impl Channels {
    pub(crate) fn new(tls: Option<&PeerTls>) -> Self {
        let tls = Arc::new(ArcSwapOption::from(tls.map(tls_of).map(Arc::new)));
        Self { tls, open: Arc::default() }
    }

    /// Shows other certificates from now on, and closes the connections that there are, once
    /// their calls are over: they would show the old ones when they are made again.
    pub(crate) fn replace_tls(&self, tls: &PeerTls) {
        self.tls.store(Some(Arc::new(tls_of(tls))));
        self.close_all();
    }

    /// The connection to an address, made when it is first used, and again when
    /// it breaks.
    pub(crate) fn to(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        if let Some(channel) = lock(&self.open).get(address) {
            return Ok(channel.clone());
        }
        let tls = self.tls.load_full();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            // Before HTTP/2 there is nothing else that notices a lost node.
            .tcp_keepalive(Some(KEEPALIVE))
            .tcp_keepalive_interval(Some(KEEPALIVE))
            .tcp_keepalive_retries(Some(KEEPALIVES))
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(ALL_WINDOWS);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(ClientTlsConfig::clone(&tls))?;
        }
        let channel = endpoint.connect_lazy();
        lock(&self.open).insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Closes the connection to an address, once its calls are over.
    pub(crate) fn close(&self, address: &str) {
        lock(&self.open).remove(address);
    }

    pub(crate) fn close_all(&self) {
        lock(&self.open).clear();
    }
}

pub(crate) fn peer_client(channel: Channel) -> PeerServiceClient<Channel> {
    PeerServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

pub(crate) fn forwarding_client(channel: Channel) -> ForwardingServiceClient<Channel> {
    ForwardingServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

/// Why a call failed: what the other node said, or else what is wrong with the
/// connection, without what the layers between have to say.
pub(crate) fn reason(status: &Status) -> String {
    if status.code() == Code::Unimplemented {
        return "no node of a cluster listens there; is it an address for clients?".to_owned();
    }
    if let Some(Error::Inconsistent { reason }) = from_status(status)
        && !reason.is_empty()
    {
        return reason;
    }
    match causes(status).skip(1).last() {
        Some(cause) => cause.to_string(),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// Returns `true` if another node itself said that it will not do what it was
/// asked.
pub(crate) fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::Internal | Code::PermissionDenied)
        && std::error::Error::source(status).is_none()
}

fn tls_of(tls: &PeerTls) -> ClientTlsConfig {
    let identity = (tls.certificate_pem.as_str(), &tls.key_pem);
    client_tls(Some(&tls.ca_pem), tls.server_name.as_deref(), Some(identity))
}

/// A server for other nodes.
pub(crate) fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(ALL_WINDOWS)
        .http2_keepalive_interval(Some(SERVER_KEEPALIVE))
}
