//! Accepts connections, and answers what comes over them.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::pace::{HEAD, Paced, Phase};
use crate::{PLAIN_TO_TLS, Stop};

/// How many connections are served at once; more wait to be accepted.
const CONNECTIONS: usize = 1024;

/// How long requests under way may take once the server is told to stop.
///
/// Source: Consul-Terraform-Sync 0.9, shutdown of the API.
const DRAIN: Duration = Duration::from_secs(5);

/// How long to wait when the process has no room for another connection.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Serves until the stop, and then for up to 5 seconds what is under way.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    stop: &Stop,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            Some(_ended) = connections.join_next() => continue,
            _ = stop.stopped() => break,
        };
        let Some((stream, permit)) = accepted else { continue };
        let (router, tls, stop) = (router.clone(), tls.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection(stream, router, tls, &stop).await {
                tracing::trace!(error = &*error, "a connection to the API ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests to the API are cut off by the end of the process");
    }
}

type Permit = tokio::sync::OwnedSemaphorePermit;

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, Permit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _peer)) => Some((stream, permit)),
        Err(error) => {
            // A connection that was given up in between is nobody's problem.
            let given_up = [
                io::ErrorKind::ConnectionAborted,
                io::ErrorKind::ConnectionReset,
                io::ErrorKind::ConnectionRefused,
            ];
            if !given_up.contains(&error.kind()) {
                tracing::warn!(%error, "the API cannot accept a connection");
                sleep(NO_ROOM).await;
            }
            None
        }
    }
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn connection(
    mut stream: TcpStream,
    router: Router,
    tls: Option<TlsAcceptor>,
    stop: &Stop,
) -> Ended {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return http(stream, router, stop).await };
    let secured = async {
        if is_plain(&stream).await? {
            refuse_plain(&mut stream).await?;
            return Ok(None);
        }
        Ok(Some(tls.accept(stream).await?))
    };
    let secured: io::Result<_> = tokio::select! {
        secured = timeout(HEAD, secured) => secured?,
        _ = stop.stopped() => return Ok(()),
    };
    match secured? {
        Some(stream) => http(stream, router, stop).await,
        None => Ok(()),
    }
}

/// Whether a client speaks HTTP where TLS is due: a method begins with a
/// letter, a TLS record does not.
async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 1 && first.iter().all(u8::is_ascii_uppercase))
}

async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Connection: close\r\n\r\n{PLAIN_TO_TLS}.\n"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What the client still sends must not make the system reset the answer.
    let mut rest = [0; 1024];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Answers the requests of one connection.
pub(super) async fn http<S>(stream: S, router: Router, stop: &Stop) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let phase = Phase::new();
    let io = TokioIo::new(Paced::new(stream, phase.clone()));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        phase.answering();
        let (router, phase) = (router.clone(), phase.clone());
        async move {
            let answer = router.oneshot(request.map(axum::body::Body::new) as Request).await;
            phase.answered();
            answer as Result<_, Infallible>
        }
    });
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(io, service);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => return Ok(ended?),
        _ = stop.stopped() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}
