//! The servers as one: requests go to one of them, and to the next when it does not answer.

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

use super::servers::{Settings, discover};

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: String,
    /// What stands in the URL; `None` leaves the TLS server name there, by which TLS checks.
    authority: Option<Authority>,
    transport: SocketTransport,
}

impl Server {
    pub(super) fn new(address: String, config: &ClientConfig) -> consul_watch::Result<Self> {
        let transport = SocketTransport::new(config)?;
        let authority = match config.tls.server_name {
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

/// Says which server it was: the client only knows what the configuration calls them all.
#[derive(Debug, thiserror::Error)]
#[error("server {address}")]
struct AtServer {
    address: String,
    source: BoxError,
}

/// All servers. One that does not answer, or has no leader, is left for the one that was tried
/// longest ago. Which there are is found out again then, unless the servers have told it.
pub(super) struct ServerPool {
    settings: Settings,
    state: Mutex<State>,
    /// The task that follows the servers; it ends with the pool.
    #[cfg(feature = "server-watch")]
    follower: std::sync::OnceLock<tokio_util::task::AbortOnDropHandle<()>>,
}

struct State {
    chosen: Arc<Server>,
    /// Addresses, those that were tried longest ago first.
    order: Vec<String>,
    /// The servers by their own word; `None` as long as they have not told it, or after all of them
    /// have failed since.
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers to try instead of one that failed.
    async fn others(&self, failed: &str) -> Vec<String> {
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

/// What following the servers needs.
#[cfg(feature = "server-watch")]
impl ServerPool {
    /// Ties the task that follows the servers to the pool.
    pub(super) fn keep(&self, follower: tokio_util::task::AbortOnDropHandle<()>) {
        // A second one is dropped, which ends it.
        drop(self.follower.set(follower));
    }

    /// The address of the server that requests go to.
    pub(super) fn chosen(&self) -> String {
        self.state().chosen.address.clone()
    }

    /// The server to try after one that failed; the same when there is no other.
    pub(super) async fn next_after(&self, failed: &str) -> String {
        let others = self.others(failed).await;
        let mut state = self.state();
        match others.into_iter().next() {
            Some(next) => {
                // Tried last, unless it is chosen: so all have their turn before it comes again.
                if let Some(at) = state.order.iter().position(|address| *address == next) {
                    let next = state.order.remove(at);
                    state.order.push(next);
                }
                next
            }
            None => failed.to_owned(),
        }
    }

    /// Leaves a server that failed, if it is the chosen one, for the next.
    pub(super) async fn leave(&self, failed: &str) {
        let next = self.next_after(failed).await;
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

    /// Notes which servers there are, as one of them says.
    pub(super) fn set_servers(&self, found: Vec<String>) {
        if found.is_empty() {
            return;
        }
        let mut state = self.state();
        state.order = reordered(&state.order, &found, "");
        state.told = Some(found);
    }
}

/// The addresses that there are now: new ones first, then the known ones in their order, and the
/// one that failed last.
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

/// Whether a server is cut off from its leader; another may not be.
fn lacks_leader(answer: &Response<Bytes>) -> bool {
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
        let first = Arc::clone(&self.state().chosen);
        let mut last = first.exchange(request.clone(), limits).await;
        if last.as_ref().is_ok_and(|answer| !lacks_leader(answer)) {
            return last;
        }
        let mut left = first.address.clone();
        for address in self.others(&first.address).await {
            let Ok(server) = self.choose(&address) else { continue };
            tracing::warn!(server = left, next = address, "the server does not answer");
            // A login that got lost may have taken effect; whoever sent it decides.
            if *request.method() == Method::POST {
                return last;
            }
            last = server.exchange(request.clone(), limits).await;
            if last.as_ref().is_ok_and(|answer| !lacks_leader(answer)) {
                return last;
            }
            left = address;
        }
        // None of those that were told answers: the next request finds out again which there are.
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
