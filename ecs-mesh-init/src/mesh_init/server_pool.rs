//! The servers as one transport: a request goes to one of them, and to the next if it does not
//! answer.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    BoxError, ClientConfig, Transport,
    transport::{ExchangeLimits, SocketTransport, TransportError},
};
use http::{Method, Request, Response, Uri, uri::Authority};

use super::discovery::{Settings, discover};

/// Connection to one server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: String,
    /// Host and port in the URL; `None` keeps the TLS server name there, which TLS verifies.
    authority: Option<Authority>,
    transport: SocketTransport,
}

impl Server {
    pub(super) fn new(address: String, config: &ClientConfig) -> consul_watch::Result<Self> {
        let transport = SocketTransport::new(config)?;
        let authority = match config.tls.server_name {
            // With a server name, the transport itself connects to the address and verifies the
            // name.
            Some(_) => None,
            None => config.address.split_once("://").and_then(|(_, rest)| rest.parse().ok()),
        };
        Ok(Self { address, authority, transport })
    }
}

#[async_trait]
impl Transport for Server {
    async fn exchange(
        &self,
        mut request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        if let Some(authority) = &self.authority {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.authority = Some(authority.clone());
            *request.uri_mut() = Uri::from_parts(parts)
                .map_err(|error| TransportError::Failed { source: error.into() })?;
        }
        self.transport.exchange(request, limits).await.map_err(|error| match error {
            TransportError::Failed { source } => TransportError::Failed {
                source: Box::new(AtServer { address: self.address.clone(), source }),
            },
            other => other,
        })
    }
}

/// Error with the server's address, because the client only knows the name that all servers share.
#[derive(Debug, thiserror::Error)]
#[error("server {address}")]
struct AtServer {
    address: String,
    source: BoxError,
}

/// All servers.
///
/// A server that does not answer, or has no leader, is replaced by the one that was tried longest
/// ago. The addresses are then discovered again, unless the servers themselves have reported them.
pub(super) struct ServerPool {
    settings: Settings,
    state: Mutex<State>,
    /// Task that follows the servers; it ends with the pool.
    #[cfg(feature = "server-watch")]
    follower: std::sync::OnceLock<tokio_util::task::AbortOnDropHandle<()>>,
}

struct State {
    chosen: Arc<Server>,
    /// Addresses, least recently tried first.
    order: Vec<String>,
    /// Servers as they report themselves; `None` before the first report, and after all of those
    /// have failed.
    told: Option<Vec<String>>,
}

impl fmt::Debug for ServerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPool")
            .field("hosts", &self.settings.servers.hosts)
            .finish_non_exhaustive()
    }
}

impl ServerPool {
    pub(super) fn new(settings: Settings, chosen: Arc<Server>, order: Vec<String>) -> Self {
        Self {
            settings,
            state: Mutex::new(State { chosen, order, told: None }),
            #[cfg(feature = "server-watch")]
            follower: std::sync::OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves no half-made state: every change here is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the servers to try after one that failed.
    async fn others(&self, failed: &str) -> Vec<String> {
        // The lock is not held while names are resolved.
        let told = self.state().told.clone();
        let found = match told {
            Some(told) => Ok(told),
            None => discover(&self.settings.servers.hosts).await,
        };
        let mut state = self.state();
        match found {
            Ok(found) => state.order = reordered(&state.order, &found, failed),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "servers are not known");
                let known = state.order.clone();
                // Discovery failed: the known addresses are better than none.
                state.order = reordered(&known, &known, failed);
            }
        }
        state.order.iter().filter(|address| *address != failed).cloned().collect()
    }

    fn choose(&self, address: &str) -> consul_watch::Result<Arc<Server>> {
        let config = self.settings.client(address);
        let server = Arc::new(Server::new(address.to_owned(), &config)?);
        self.state().chosen = Arc::clone(&server);
        Ok(server)
    }
}

/// Operations of the task that follows the servers.
#[cfg(feature = "server-watch")]
impl ServerPool {
    /// Stores the task that follows the servers, so that it ends with the pool.
    pub(super) fn keep(&self, follower: tokio_util::task::AbortOnDropHandle<()>) {
        // A second one is dropped, which ends it.
        drop(self.follower.set(follower));
    }

    /// Returns the address of the server that requests go to.
    pub(super) fn chosen(&self) -> String {
        self.state().chosen.address.clone()
    }

    /// Returns the server to try after one that failed; the same one if there is no other.
    pub(super) async fn next_after(&self, failed: &str) -> String {
        let others = self.others(failed).await;
        // Locked again after discovery: another request may have reordered the list meanwhile.
        let mut state = self.state();
        match others.into_iter().next() {
            Some(next) => {
                // Moved to the end even if it is not chosen, so that every server is tried before
                // it comes again.
                if let Some(at) = state.order.iter().position(|address| *address == next) {
                    let next = state.order.remove(at);
                    state.order.push(next);
                }
                next
            }
            None => failed.to_owned(),
        }
    }

    /// Replaces the chosen server if it is the one that failed.
    pub(super) async fn leave(&self, failed: &str) {
        let next = self.next_after(failed).await;
        // Somebody else may have switched already, and their choice may be good.
        if self.chosen() == failed
            && let Err(error) = self.switch_to(&next)
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "the server is not usable");
        }
    }

    /// Sends requests to this server from now on.
    pub(super) fn switch_to(&self, address: &str) -> consul_watch::Result<()> {
        if self.chosen() != address {
            self.choose(address)?;
            tracing::info!(server = address, "switched to the server");
        }
        Ok(())
    }

    /// Stores the set of servers that one of them reported.
    pub(super) fn set_servers(&self, found: Vec<String>) {
        // An empty set would leave nothing to try.
        if found.is_empty() {
            return;
        }
        let mut state = self.state();
        state.order = reordered(&state.order, &found, "");
        state.told = Some(found);
    }
}

/// Returns the present addresses: new ones first, then the known ones in their order, and the
/// failed one last.
fn reordered(known: &[String], found: &[String], failed: &str) -> Vec<String> {
    let new = found.iter().filter(|address| !known.contains(address));
    let still = known.iter().filter(|address| found.contains(address));
    let mut order: Vec<String> = new.chain(still).cloned().collect();
    if let Some(at) = order.iter().position(|address| address == failed) {
        let failed = order.remove(at);
        order.push(failed);
    }
    order
}

/// Returns `true` if a server is cut off from its leader; another one may not be.
fn lacks_leader(answer: &Response<Bytes>) -> bool {
    // Consul answers 500 with this text; there is no status of its own for it.
    answer.status().is_server_error()
        && String::from_utf8_lossy(answer.body()).contains("No cluster leader")
}

#[async_trait]
impl Transport for ServerPool {
    async fn exchange(
        &self,
        request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        // Cloned out of the lock, which must not be held across the request.
        let first = Arc::clone(&self.state().chosen);
        let mut last = first.exchange(request.clone(), limits).await;
        if last.as_ref().is_ok_and(|answer| !lacks_leader(answer)) {
            return last;
        }
        let mut left = first.address.clone();
        for address in self.others(&first.address).await {
            let Ok(server) = self.choose(&address) else { continue };
            tracing::warn!(server = left, next = address, "the server does not answer");
            // A login that got lost may have taken effect, and a second would create a second
            // token: the caller decides.
            if *request.method() == Method::POST {
                return last;
            }
            last = server.exchange(request.clone(), limits).await;
            if last.as_ref().is_ok_and(|answer| !lacks_leader(answer)) {
                return last;
            }
            left = address;
        }
        // None of the reported servers answers: the next request discovers them again.
        self.state().told = None;
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_tried_longest_ago_is_next() {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(reordered(&list("a b c"), &list("a b c"), "a"), list("b c a"));
        assert_eq!(reordered(&list("b c a"), &list("a b c"), "b"), list("c a b"));
        assert_eq!(reordered(&list("a b"), &list("b d"), "a"), list("d b"));
        assert_eq!(reordered(&list("a"), &list("a"), "a"), list("a"));
        assert_eq!(reordered(&list("a"), &[], "a"), list(""));
    }
}
