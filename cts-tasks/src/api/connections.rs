//! Accepts connections, and answers what comes over them.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use super::{
    certificates::Certificates,
    limits::{ConnectionLimits, LARGEST_HEAD},
    pace::{Paced, Phase},
    roster::{Listing, Roster},
};
use crate::{PLAIN_TO_TLS, Stop};

/// Time that requests under way have to end once the server is asked to stop.
///
/// Source: Consul-Terraform-Sync 0.9, shutdown of the API.
const DRAIN: Duration = Duration::from_secs(5);

/// Pause after the system has refused another descriptor.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Serves until the stop, and then for up to 5 seconds what is under way.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Certificates>>,
    stop: &Stop,
) {
    let roster = Roster::new(ConnectionLimits::of_process());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &roster) => accepted,
            Some(_ended) = connections.join_next() => continue,
            _ = stop.stopped() => break,
        };
        let Some((stream, listing)) = accepted else { continue };
        let (router, tls, stop) = (router.clone(), tls.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection(stream, router, tls, &listing.phase, &stop).await {
                tracing::trace!(error = &*error, "a connection to the API ended");
            }
            // The socket is closed by now, so its descriptor is free.
            drop(listing);
        });
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests to the API are cut off by the end of the process");
    }
}

async fn accept(listener: &TcpListener, roster: &Arc<Roster>) -> Option<(TcpStream, Listing)> {
    roster.room().await;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let listing = roster.enter(peer.ip());
            if listing.is_none() {
                refused(peer);
            }
            Some((stream, listing?))
        }
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

fn refused(peer: SocketAddr) {
    tracing::debug!(%peer, "too many requests of this client are being answered, connection refused");
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn connection(
    mut stream: TcpStream,
    router: Router,
    tls: Option<Arc<Certificates>>,
    phase: &Phase,
    stop: &Stop,
) -> Ended {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return http(stream, router, phase, stop).await };
    let secured = async {
        if is_plain(&stream).await? {
            refuse_plain(&mut stream).await?;
            return Ok(None);
        }
        Ok(Some(tls.acceptor().await.accept(stream).await?))
    };
    let secured: io::Result<_> = tokio::select! {
        secured = secured => secured,
        () = phase.overdue() => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        _ = stop.stopped() => return Ok(()),
    };
    match secured? {
        Some(stream) => {
            phase.head();
            http(stream, router, phase, stop).await
        }
        None => Ok(()),
    }
}

/// Returns `true` if a client speaks HTTP where TLS is due: a method begins with a
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
pub(super) async fn http<S>(stream: S, router: Router, phase: &Phase, stop: &Stop) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Paced::new(stream, phase.clone()));
    let answering = phase.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (router, phase) = (router.clone(), answering.clone());
        async move {
            // A request on a connection that gave way has had no effect, so its client
            // may send it again.
            if !phase.answering() {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            let answer = router.oneshot(request.map(axum::body::Body::new) as Request).await;
            phase.answered();
            answer.map_err(|never| match never {})
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(io, service);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => return Ok(ended?),
        () = phase.overdue() => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        _ = stop.stopped() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, DuplexStream, duplex},
        task::JoinHandle,
        time::Instant,
    };

    use super::*;
    use crate::{
        StopReason,
        api::limits::{HEAD, IDLE},
    };

    /// A connection whose answers take two minutes under `/slow`.
    fn connect(stop: &Stop) -> (DuplexStream, JoinHandle<Duration>) {
        let (near, far) = duplex(64 * 1024);
        let slow = || async {
            sleep(Duration::from_mins(2)).await;
            "slow"
        };
        let router = Router::new().route("/", get(|| async { "fast" })).route("/slow", get(slow));
        let stop = stop.clone();
        let serving = tokio::spawn(async move {
            let started = Instant::now();
            // A connection that is cut off ends with an error, and that is fine here.
            let _ended = http(far, router, &Phase::new(), &stop).await;
            started.elapsed()
        });
        (near, serving)
    }

    async fn ask(near: &mut DuplexStream, path: &str, body: &str) {
        near.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(body.as_bytes()) {
            assert_ne!(near.read_buf(&mut answer).await.unwrap(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_ends_the_connection() {
        let (_near, serving) = connect(&Stop::new());
        assert_eq!(serving.await.unwrap().as_secs(), HEAD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_ends_the_connection() {
        let (mut near, serving) = connect(&Stop::new());
        ask(&mut near, "/", "fast").await;
        for byte in b"GET / HTTP/1.1\r\nhost" {
            let _once_closed_fails = near.write_all(&[*byte]).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(serving.await.unwrap().as_secs(), HEAD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_kept_for_a_minute() {
        let (mut near, serving) = connect(&Stop::new());
        ask(&mut near, "/", "fast").await;
        sleep(Duration::from_secs(59)).await;
        ask(&mut near, "/", "fast").await;
        assert_eq!(serving.await.unwrap().as_secs(), 59 + IDLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_as_long_as_it_takes() {
        let (mut near, serving) = connect(&Stop::new());
        ask(&mut near, "/slow", "slow").await;
        assert_eq!(serving.await.unwrap().as_secs(), 120 + IDLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_idle_connections_and_waits_for_answers() {
        let stop = Stop::new();
        let (mut idle, ended) = connect(&stop);
        ask(&mut idle, "/", "fast").await;
        let (mut busy, answered) = connect(&stop);
        let stopping = async {
            sleep(Duration::from_secs(5)).await;
            stop.stop(StopReason::Shutdown);
        };
        tokio::join!(ask(&mut busy, "/slow", "slow"), stopping);
        assert_eq!(ended.await.unwrap().as_secs(), 5);
        assert_eq!(answered.await.unwrap().as_secs(), 120);
    }
}
