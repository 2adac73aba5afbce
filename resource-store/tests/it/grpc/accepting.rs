//! Connections that say nothing, or come in crowds, and certificates that change.

use std::net::SocketAddr;

use resource_store::{acl::SameForAll, server::ServerError};
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

async fn answers(server: &Running) {
    let begun = Instant::now();
    let client = client(server);
    let call = timeout(PATIENCE, client.read(id(&artist("nobody")))).await.unwrap();
    assert_fails(call, Code::NotFound, "resource not found");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

async fn connect(server: &Running, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(&server.address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

/// Waits for the server to end a connection.
async fn ended(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is still open");
    assert!(read.is_err() || rest.is_empty(), "an answer to nothing: {rest:?}");
}

#[tokio::test]
async fn silent_connections_are_cut() {
    let mut config = ServerConfig::default();
    config.handshake_timeout = Duration::from_millis(300);
    let server = start(service(), config).await;
    let mut silent = Vec::new();
    // Nothing, one byte, and the beginning of what HTTP/2 begins with.
    for bytes in [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n"] {
        for _ in 0..20 {
            silent.push(connect(&server, bytes).await);
        }
    }
    answers(&server).await;
    for socket in &mut silent {
        ended(socket).await;
    }
    answers(&server).await;
}

/// Waits for the server to end a connection, whatever it says before that.
async fn is_ended(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    drop(timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is still open"));
}

/// The preface of HTTP/2, and empty settings.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A greeting is no call, and the beginning of a request is no request.
#[tokio::test]
async fn connections_that_ask_for_nothing_are_cut() {
    let mut config = ServerConfig::default();
    config.handshake_timeout = Duration::from_millis(300);
    config.idle_timeout = Duration::from_millis(300);
    let server = start(service(), config).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(connect(&server, GREETING).await);
        idle.push(connect(&server, b"GET /api/demo/v2/artist HTTP/1.1\r\nhost: a\r\n").await);
        idle.push(connect(&server, b"GET /none HTTP/1.1\r\nhost: a\r\n\r\n").await);
    }
    answers(&server).await;
    for socket in &mut idle {
        is_ended(socket).await;
    }
    answers(&server).await;
}

/// A connection from another address of this machine.
async fn connect_from(from: [u8; 4], server: &Running, bytes: &[u8]) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut socket = socket.connect(server.address.parse().unwrap()).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

#[cfg(feature = "http")]
const WATCH: &[u8] = b"GET /api/demo/v2/artist?watch HTTP/1.1\r\nhost: a\r\n\r\n";

/// Connections at work are not ended; those of one address are only so many.
#[cfg(feature = "http")]
#[tokio::test]
async fn one_address_does_not_take_every_place() {
    let mut config = ServerConfig::default();
    config.max_connections = 8;
    config.max_connections_per_address = 4;
    let server = start(service(), config).await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        let mut watch = connect_from([127, 0, 0, 2], &server, WATCH).await;
        let mut first = [0];
        watch.read_exact(&mut first).await.unwrap();
        watches.push(watch);
    }
    let mut refused = connect_from([127, 0, 0, 2], &server, b"").await;
    ended(&mut refused).await;
    answers(&server).await;
}

/// A client that takes no answer, and answers no ping either, is given up.
#[cfg(feature = "http")]
#[tokio::test]
async fn clients_that_take_nothing_are_cut() {
    let mut config = ServerConfig::default();
    config.write_timeout = Duration::from_millis(300);
    let service = service();
    let mut large = artist("korn");
    large.metadata.insert("large".to_owned(), "x".repeat(20 << 20));
    service.put(large).await.unwrap();
    let server = start(service, config).await;
    let read = b"GET /api/demo/v2/artist/korn?partition=default&namespace=default HTTP/1.1\r\n\
                 host: a\r\n\r\n";
    let mut slow = connect(&server, read).await;
    let mut first = [0];
    slow.read_exact(&mut first).await.unwrap();
    // More than its time without taking a byte: the rest never comes.
    tokio::time::sleep(Duration::from_millis(900)).await;
    let mut rest = Vec::new();
    drop(timeout(PATIENCE, slow.read_to_end(&mut rest)).await.expect("it is still open"));
    assert!(rest.len() < 20 << 20, "{} bytes came", rest.len());
}

/// Bodies that are under way take so much memory, and one address a quarter.
#[cfg(feature = "http")]
#[tokio::test]
async fn the_bodies_of_requests_are_bounded_together() {
    let mut config = ServerConfig::default();
    config.max_body_memory = 400_000;
    let server = start(service(), config).await;
    let of_size = |bytes: usize| {
        let mut artist = artist("korn");
        artist.metadata.insert("large".to_owned(), "x".repeat(bytes));
        artist
    };
    let client = client(&server);
    let head = "PUT /api/demo/v2/artist/korn?partition=default&namespace=default HTTP/1.1\r\nhost: \
                a\r\ncontent-length: 200000\r\n\r\n";
    // 90,000 bytes of a body that does not end.
    let mut begun = connect(&server, head.as_bytes()).await;
    begun.write_all(&vec![b'x'; 90_000]).await.unwrap();
    let refused = async {
        loop {
            match client.write(of_size(20_000)).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    let refused = timeout(PATIENCE, refused).await.expect("it was not counted");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.is_retryable());
    client.write(of_size(100)).await.unwrap();

    let mut other = connect_from([127, 0, 0, 2], &server, head.as_bytes()).await;
    other.write_all(&vec![b'x'; 110_000]).await.unwrap();
    let mut answer = [0; 64];
    other.read_exact(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 429 "), "{}", String::from_utf8_lossy(&answer));
    drop(begun);
    let again = async {
        while client.write(of_size(20_000)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("what was taken is given back");
}

/// A watch that is told nothing is no silent connection.
#[tokio::test]
async fn quiet_watches_are_not_cut() {
    let mut config = ServerConfig::default();
    config.handshake_timeout = Duration::from_millis(100);
    config.idle_timeout = Duration::from_millis(100);
    config.keepalive_interval = Duration::from_millis(100);
    config.keepalive_timeout = Duration::from_secs(5);
    let service = service();
    let server = start(service.clone(), config).await;
    let mut watch = client(&server).watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    assert!(timeout(Duration::from_millis(700), watch.next()).await.is_err());
    let stored = service.put(artist("korn")).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(stored));
}

#[tokio::test]
async fn a_crowd_of_silent_connections_keeps_nobody_out() {
    let mut config = ServerConfig::default();
    config.max_connections = 8;
    let server = start(service(), config).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(connect(&server, b"P").await);
        if silent.len() % 10 == 0 {
            answers(&server).await;
        }
    }
    // The oldest made room for the later ones.
    for socket in &mut silent[..40] {
        ended(socket).await;
    }
}

#[tokio::test]
async fn connections_at_work_are_not_ended_for_new_ones() {
    let mut config = ServerConfig::default();
    config.max_connections = 2;
    let service = service();
    let server = start(service.clone(), config).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut watch = client(&server).watch_list(watch_artists()).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
        watches.push(watch);
    }
    let refused = timeout(PATIENCE, client(&server).read(id(&artist("korn")))).await.unwrap();
    let refused = refused.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let stored = service.put(artist("korn")).await.unwrap();
    for watch in &mut watches {
        assert_eq!(next(watch).await, WatchEvent::Upsert(Arc::clone(&stored)));
    }
    watches.pop();
    // The place is given back once the server has noticed.
    let given_back = async {
        while client(&server).read(id(&artist("korn"))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, given_back).await.unwrap();
}

#[tokio::test]
async fn watches_are_limited() {
    let mut config = ServerConfig::default();
    config.max_watches = 2;
    let server = start(service(), config).await;
    let client = client(&server);
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut watch = client.watch_list(watch_artists()).await.unwrap();
        assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
        watches.push(watch);
    }
    let mut refused = client.watch_list(watch_artists()).await.unwrap();
    let error = refused.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert!(error.is_retryable());
    watches.clear();
    let again = async {
        loop {
            let mut watch = client.watch_list(watch_artists()).await.unwrap();
            if let Some(Ok(WatchEvent::EndOfSnapshot)) = watch.next().await {
                return;
            }
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}

/// A certificate of its own for 127.0.0.1, and its key.
fn certificate() -> (String, SecretString) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem().into())
}

fn trusting(address: SocketAddr, ca: &str) -> GrpcClient {
    let mut config = GrpcClientConfig::new(&format!("https://{address}"));
    config.ca_pem = Some(ca.to_owned());
    GrpcClient::new(&config).unwrap()
}

/// New connections get the new certificate; those that there are go on.
#[tokio::test]
async fn certificates_are_replaced_while_the_server_runs() {
    let (first, first_key) = certificate();
    let (second, second_key) = certificate();
    let mut config = ServerConfig::default();
    config.address = "127.0.0.1:0".to_owned();
    config.handshake_timeout = Duration::from_millis(500);
    config.tls = Some(ServerTls::new(first.clone(), first_key));
    let server = Server::bind(service(), config).await.unwrap();
    let (address, handle) = (server.local_addr().unwrap(), server.tls_handle().unwrap());
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));

    let early = trusting(address, &first);
    let mut watch = early.watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    let (other, _) = certificate();
    let wrong = ServerTls::new(other, second_key.clone());
    assert!(handle.replace(&wrong).is_err(), "the key of another certificate");
    handle.replace(&ServerTls::new(second.clone(), second_key)).unwrap();

    let late = trusting(address, &second);
    let stored = late.write(artist("korn")).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(Arc::new(stored)));
    let refused = trusting(address, &first).read(id(&artist("korn"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");

    // Nothing and nonsense in place of a handshake.
    for bytes in [b"".as_slice(), b"GET / HTTP/1.1\r\n\r\n"] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        drop(timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is still open"));
    }
    stop.cancel();
    timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
}

/// Others could reach it: not without TLS and tokens, unless that is wanted.
#[tokio::test]
async fn others_are_served_with_tls_and_tokens_only() {
    let guarded = || builder().authorization(SameForAll::new(no_rules())).build();
    let (certificate, key) = certificate();
    let tls = || Some(ServerTls::new(certificate.clone(), key.clone()));
    for (service, tls, allowed, expected) in [
        (service(), None, false, Some("without TLS")),
        (guarded(), None, false, Some("without TLS")),
        (service(), tls(), false, Some("with everything allowed to everybody")),
        (guarded(), tls(), false, None),
        (service(), None, true, None),
    ] {
        let mut config = ServerConfig::default();
        config.address = "0.0.0.0:0".to_owned();
        config.tls = tls;
        config.allow_insecure = allowed;
        match (Server::bind(service, config).await, expected) {
            (Ok(_), None) => {}
            (Err(error @ ServerError::Insecure { .. }), Some(reason)) => {
                assert!(error.to_string().contains(reason), "{error}");
            }
            (other, expected) => panic!("{expected:?}: {other:?}"),
        }
    }
}
