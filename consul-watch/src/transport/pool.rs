//! Connections over plain HTTP/1.1, straight to Consul or to a proxy that passes requests on.

use std::{
    io::{ErrorKind, Read as _},
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST,
        PROXY_AUTHORIZATION, USER_AGENT,
    },
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
    service::Service as _,
};
use hyper_util::{
    client::{legacy::connect::HttpConnector, proxy::matcher::Intercept},
    rt::TokioIo,
    service::TowerToHyperService,
};
use tokio::{
    net::UnixStream,
    sync::OwnedSemaphorePermit,
    task::{JoinHandle, unconstrained},
    time::{Instant, sleep, timeout},
};

use crate::{
    BoxError, Result,
    config::{ClientConfig, ConnectionConfig},
    endpoint::Endpoint,
    transport::{Budget, ExchangeLimits, TransportError, user_agent::USER_AGENT_NAME},
};
use refusals::{Connections, Open};

mod refusals;

type Request = http::Request<Full<Bytes>>;

/// An exchange whose connection is refused is tried so often again, with a smaller budget.
const MOST_REFUSALS: u32 = 10;
/// Pause after the first refusal; after further ones it is longer.
const AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// Connections over plain HTTP/1.1, as few as there are exchanges at a time.
///
/// A connection is opened only when none is idle, and an exchange is over only when
/// its connection is idle again, or closed. So there are never more than there were
/// exchanges at the same time, whatever the timing; a pool that opens one while
/// another is on its way back has up to twice as many. An exchange within a
/// [`Budget`] keeps its part of it for as long.
#[derive(Debug)]
pub(super) struct Pool {
    target: Target,
    /// Proxy that every request goes through.
    proxy: Option<Intercept>,
    /// Answers may come compressed.
    zipped: bool,
    kept: ConnectionConfig,
    parked: Arc<Mutex<Parked>>,
    connections: Arc<Connections>,
}

#[derive(Debug)]
enum Target {
    Tcp(TowerToHyperService<HttpConnector>),
    Unix(PathBuf, Duration),
}

/// An exchange that did not take place.
struct Lost {
    error: TransportError,
    /// A new connection that was closed at once, as Consul does with one too many.
    refused: Option<Connection>,
}

impl Lost {
    fn other(error: TransportError) -> Self {
        Self { error, refused: None }
    }
}

/// The reason why there is no answer on a connection.
struct Unanswered {
    error: TransportError,
    /// The other side closed it.
    closed: bool,
    /// The request, if nothing of it was sent.
    unsent: Option<Request>,
}

/// Returns `true` if the other side closed the connection before it answered.
fn is_closed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    let io = loop {
        match source.map(|it| (it.downcast_ref::<std::io::Error>(), it)) {
            Some((Some(io), _)) => break Some(io.kind()),
            Some((None, it)) => source = it.source(),
            None => break None,
        }
    };
    // Which of these comes is up to how far the request was when the socket was closed.
    let reset = matches!(io, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
    error.is_incomplete_message() || error.is_canceled() || reset
}

/// Returns `true` for the raw answer to a connection too many, which closes it. Consul says "too
/// many" for other reasons, too, and on connections that it keeps.
fn is_refusal<B>(answer: &http::Response<B>) -> bool {
    let closes = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    answer.status() == StatusCode::TOO_MANY_REQUESTS
        && answer.headers().get(CONNECTION).is_some_and(closes)
}

/// Connections that nothing uses.
#[derive(Debug, Default)]
struct Parked {
    /// The last one was used last.
    idle: Vec<(Instant, Connection)>,
    /// Closes those that were idle for too long, while there are any.
    reaper: Option<JoinHandle<()>>,
}

impl Pool {
    /// Connections by TCP to where the request's URL points or to the proxy, which speaks plain HTTP,
    /// or to a unix socket.
    pub(super) fn new(config: &ClientConfig, endpoint: Endpoint, proxy: Option<Intercept>) -> Self {
        // On this machine, compression costs more than the bytes that it saves.
        let zipped = !endpoint.is_loopback();
        let target = endpoint.unix_socket.map_or_else(
            || {
                let mut connector = HttpConnector::new();
                connector.set_connect_timeout(Some(config.connect_timeout));
                connector.set_keepalive(config.connections.keep_alive);
                // Requests are small and alone on their connection: Nagle's delay would only add to
                // each.
                connector.set_nodelay(true);
                Target::Tcp(TowerToHyperService::new(connector))
            },
            |path| Target::Unix(path, config.connect_timeout),
        );
        let kept = config.connections;
        Self { target, proxy, zipped, kept, parked: Arc::default(), connections: Arc::default() }
    }

    pub(super) async fn exchange(
        &self,
        mut request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let budget = request.extensions_mut().remove::<Budget>();
        let uri = request.uri().clone();
        let request = self.complete(request)?;
        let mut refusals = 0;
        let (connection, answer) = loop {
            let permit = match &budget {
                // Before the time of the request begins: others may hold theirs for long.
                Some(budget) => budget.part().await,
                None => None,
            };
            let sent = timeout(limits.headers, self.send(&uri, request.clone(), permit))
                .await
                .map_err(|_elapsed| TransportError::Timeout { after: limits.headers })?;
            // Without a budget a refusal is the caller's: nobody would use fewer connections for
            // it.
            let Some(budget) = budget.as_ref().filter(|_| refusals < MOST_REFUSALS) else {
                break sent.map_err(|lost| lost.error)?;
            };
            let (refused, silent) = match sent {
                Ok((connection, answer)) if is_refusal(&answer) => (connection, false),
                Ok(answered) => break answered,
                Err(Lost { refused: Some(connection), .. }) => (connection, true),
                Err(Lost { error, refused: None }) => return Err(error),
            };
            // Its part of the budget is not free before the refusal is understood: until then,
            // another connection in its place is refused like it.
            let permit = refused.take_back();
            if let Some(served) = refused.close().refused(silent).await {
                budget.refused(served);
            }
            refusals += 1;
            sleep(AFTER_REFUSAL * refusals).await;
            drop(permit);
        };
        let (mut parts, mut stream) = answer.into_parts();
        let idle_limit = |_elapsed| TransportError::Timeout { after: limits.body_idle };
        let mut body = BytesMut::new();
        while let Some(frame) =
            timeout(limits.body_idle, stream.frame()).await.map_err(idle_limit)?
        {
            if let Ok(data) = frame.map_err(failed)?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        drop(stream);
        // Before the answer is returned, so that the caller's next request finds the connection.
        self.park(connection, limits.body_idle).await;
        let body = unzip(&mut parts.headers, body.freeze())?;
        Ok(http::Response::from_parts(parts, body))
    }

    /// The request as it goes over the wire.
    fn complete(&self, request: http::Request<Bytes>) -> Result<Request, TransportError> {
        let (mut parts, body) = request.into_parts();
        let host = parts.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(failed)?;
        if self.proxy.is_none() {
            // A proxy takes the whole URL, a server the path alone.
            let path = parts.uri.path_and_query().cloned();
            parts.uri = path.map_or_else(Uri::default, Uri::from);
        }
        let mut set = |name: HeaderName, value| {
            parts.headers.entry(name).or_insert(value);
        };
        set(HOST, host);
        set(USER_AGENT, HeaderValue::from_static(USER_AGENT_NAME));
        set(ACCEPT, HeaderValue::from_static("*/*"));
        if self.zipped {
            set(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(credentials) = self.proxy.as_ref().and_then(Intercept::basic_auth) {
            set(PROXY_AUTHORIZATION, credentials.clone());
        }
        if !self.kept.reuse {
            set(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(http::Request::from_parts(parts, Full::new(body)))
    }

    /// Sends a request on an idle connection, or else on a new one.
    async fn send(
        &self,
        uri: &Uri,
        mut request: Request,
        mut permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(Connection, http::Response<Incoming>), Lost> {
        loop {
            let idle = self.take();
            let used = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect(uri).await.map_err(Lost::other)?,
            };
            // With the connection, not with the exchange: a future that is dropped frees its part
            // only when the socket is closed.
            connection.lend(permit.take());
            match connection.send(request).await {
                Ok(answer) => {
                    if !is_refusal(&answer) {
                        connection.open.served();
                    }
                    return Ok((connection, answer));
                }
                // The server had closed it, and nothing was sent.
                Err(Unanswered { unsent: Some(unsent), .. }) if used => {
                    permit = connection.take_back();
                    request = unsent;
                }
                // Consul before 1.9 closes what is over its limit without a word.
                Err(Unanswered { error, closed, .. }) => {
                    let refused = (closed && !used).then_some(connection);
                    return Err(Lost { error, refused });
                }
            }
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<Connection, TransportError> {
        match &self.target {
            Target::Tcp(connector) => {
                let next = self.proxy.as_ref().map_or(uri, Intercept::uri);
                let stream = connector.call(next.clone()).await.map_err(failed)?;
                Connection::over(stream, self.connections.open()).await
            }
            Target::Unix(path, limit) => {
                let stream = timeout(*limit, UnixStream::connect(path))
                    .await
                    .map_err(failed)?
                    .map_err(failed)?;
                Connection::over(TokioIo::new(stream), self.connections.open()).await
            }
        }
    }

    /// The idle connection that was used last, so that those there is no need for get old.
    fn take(&self) -> Option<Connection> {
        let mut parked = lock(&self.parked);
        while let Some((_since, connection)) = parked.idle.pop() {
            // The server closes idle connections, too, and the task learns of it first.
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose answer was read, unless it is closing or one too many.
    async fn park(&self, mut connection: Connection, limit: Duration) {
        if !self.kept.reuse || self.kept.max_idle == Some(0) {
            return;
        }
        // The body was read, but hyper may still be at the end of the message.
        match timeout(limit, connection.sender.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return connection.open.ended(),
            Err(_elapsed) => return,
        }
        let mut parked = lock(&self.parked);
        let permit = connection.take_back();
        parked.idle.push((Instant::now(), connection));
        if self.kept.max_idle.is_some_and(|most| parked.idle.len() > most) {
            // The one that was used longest ago.
            drop(parked.idle.remove(0));
        }
        if let Some(idle) = self.kept.idle_timeout
            && parked.reaper.as_ref().is_none_or(JoinHandle::is_finished)
        {
            parked.reaper = Some(tokio::spawn(reap(Arc::downgrade(&self.parked), idle)));
        }
        // Whoever gets it next must find the connection there.
        drop(parked);
        drop(permit);
    }
}

fn lock(parked: &Mutex<Parked>) -> MutexGuard<'_, Parked> {
    // Nothing that holds the lock can leave the list half changed.
    parked.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(reaper) = &self.reaper {
            reaper.abort();
        }
    }
}

async fn reap(parked: Weak<Mutex<Parked>>, idle: Duration) {
    loop {
        // So one is closed after one and a half times the limit at most, without a timer for each.
        sleep(idle / 2).await;
        let Some(parked) = parked.upgrade() else { return };
        let mut parked = lock(&parked);
        parked.idle.retain(|(since, _connection)| since.elapsed() < idle);
        if parked.idle.is_empty() {
            parked.reaper = None;
            return;
        }
    }
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
    /// Part of a budget, also held by the task: it is free again when the socket is closed.
    lent: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    open: Arc<Open>,
}

impl Connection {
    async fn over<T>(io: T, open: Arc<Open>) -> Result<Self, TransportError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
        let lent = Arc::new(Mutex::new(None));
        let held = (Arc::clone(&lent), Arc::clone(&open));
        let task = tokio::spawn(async move {
            // Outlives the socket, also if this is aborted.
            let (_lent, open) = held;
            if let Err(error) = connection.await {
                tracing::trace!(error = &error as &dyn std::error::Error, "connection lost");
            }
            open.ended();
        });
        Ok(Self { sender, task, lent, open })
    }

    /// Sends a request, and waits for the head of the answer.
    async fn send(&mut self, request: Request) -> Result<http::Response<Incoming>, Unanswered> {
        let kept = request.clone();
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = tokio::select! {
            biased;
            answered = &mut answer => Some(answered),
            // A request that is handed over while the connection ends may stay on its way, and
            // then there is never an answer, nor an error. One that is there is not to be hidden by
            // the task's share of time: what was sent is not sent again.
            _ended = &mut self.task => unconstrained(answer).now_or_never(),
        };
        match answered {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(mut error)) => {
                let unsent = error.take_message();
                let error = error.into_error();
                Err(Unanswered { closed: is_closed(&error), error: failed(error), unsent })
            }
            None => {
                let error = std::io::Error::new(
                    ErrorKind::ConnectionReset,
                    "the server closed the connection before the request was sent",
                );
                Err(Unanswered { closed: true, error: failed(error), unsent: Some(kept) })
            }
        }
    }

    fn lend(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    fn take_back(&self) -> Option<OwnedSemaphorePermit> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Closes it, and counts it as open until what is returned is dropped.
    fn close(self) -> Arc<Open> {
        Arc::clone(&self.open)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.give_up();
        self.task.abort();
    }
}

/// The body as it was before compression. Headers that were about the other form go.
fn unzip(headers: &mut HeaderMap, body: Bytes) -> Result<Bytes, TransportError> {
    let zipped = headers.get(CONTENT_ENCODING).is_some_and(|it| it.as_bytes() == b"gzip");
    if !zipped {
        return Ok(body);
    }
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut plain = Vec::new();
    if !body.is_empty() {
        flate2::read::MultiGzDecoder::new(&*body).read_to_end(&mut plain).map_err(failed)?;
    }
    Ok(plain.into())
}

fn failed(error: impl Into<BoxError>) -> TransportError {
    TransportError::Failed { source: error.into() }
}

#[cfg(test)]
mod tests;
