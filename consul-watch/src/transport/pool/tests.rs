//! Tests of the pool against servers that answer, refuse, hang and stop.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{refusals::LINGERING, *};

const LIMIT: Duration = Duration::from_secs(30);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn pool() -> Pool {
    pool_of(&ClientConfig::default(), None)
}

fn pool_of(config: &ClientConfig, proxy: Option<Intercept>) -> Pool {
    Pool::new(config, Endpoint::parse(config).unwrap(), proxy)
}

fn limits() -> ExchangeLimits {
    ExchangeLimits::new(LIMIT, LIMIT)
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1/kv/a?raw", listener.local_addr().unwrap());
    (listener, url)
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

fn get_within(url: &str, budget: &Budget) -> http::Request<Bytes> {
    http::Request::get(url).extension(budget.clone()).body(Bytes::new()).unwrap()
}

/// Reads one request without a body; `None` when the other side has closed.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        text.extend_from_slice(&byte);
    }
    String::from_utf8(text).ok()
}

/// Answers every request at once, and counts the connections there ever were.
async fn serve(listener: TcpListener, accepted: Arc<AtomicUsize>) {
    loop {
        let (mut stream, _peer) = listener.accept().await.unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            while request(&mut stream).await.is_some() && stream.write_all(ANSWER).await.is_ok() {}
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn there_are_no_more_connections_than_exchanges_at_a_time() {
    const CROWD: usize = 50;
    let (listener, url) = listen().await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve(listener, Arc::clone(&accepted)));
    let pool = Arc::new(pool());
    let tasks = (0..CROWD).map(|_| {
        let (pool, url) = (Arc::clone(&pool), url.clone());
        tokio::spawn(async move {
            // Each asks again at the moment it has its answer.
            for _ in 0..40 {
                let answer = pool.exchange(get(&url), limits()).await.unwrap();
                assert_eq!(&answer.body()[..], b"ok");
            }
        })
    });
    for ended in join_all(tasks).await {
        ended.unwrap();
    }
    server.abort();
    assert!(accepted.load(Ordering::Relaxed) <= CROWD, "{accepted:?} connections");
}

#[tokio::test]
async fn one_exchange_after_the_other_uses_one_connection() {
    let (listener, url) = listen().await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve(listener, Arc::clone(&accepted)));
    let (pool, budget) = (pool(), Budget::new(1));
    for _ in 0..20 {
        pool.exchange(get_within(&url, &budget), limits()).await.unwrap();
        pool.exchange(get(&url), limits()).await.unwrap();
    }
    server.abort();
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn part_of_a_budget_is_free_when_the_connection_is_closed() {
    for _ in 0..20 {
        let (listener, url) = listen().await;
        let (pool, budget) = (Arc::new(pool()), Budget::new(1));
        let ask = || {
            let (pool, request) = (Arc::clone(&pool), get_within(&url, &budget));
            tokio::spawn(async move { pool.exchange(request, limits()).await })
        };
        let first = ask();
        let (mut held, _peer) = listener.accept().await.unwrap();
        assert!(request(&mut held).await.is_some());
        let second = ask();
        let early = timeout(Duration::from_millis(20), listener.accept()).await;
        assert!(early.is_err(), "the budget is used up");
        first.abort();
        let (mut next, _peer) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
        let mut byte = [0];
        assert_eq!(held.try_read(&mut byte).unwrap(), 0, "open beside the next one");
        assert!(request(&mut next).await.is_some());
        next.write_all(ANSWER).await.unwrap();
        assert_eq!(second.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn waiting_for_a_budget_is_not_time_of_the_request() {
    let (listener, url) = listen().await;
    let (pool, budget) = (Arc::new(pool()), Budget::new(1));
    let part = budget.clone().part().await;
    let brief = Duration::from_millis(200);
    let asked = tokio::spawn({
        let (pool, request) = (Arc::clone(&pool), get_within(&url, &budget));
        async move { pool.exchange(request, ExchangeLimits::new(brief, brief)).await }
    });
    sleep(brief * 2).await;
    assert!(!asked.is_finished());
    drop(part);
    let (mut stream, _peer) = listener.accept().await.unwrap();
    assert!(request(&mut stream).await.is_some());
    stream.write_all(ANSWER).await.unwrap();
    assert_eq!(asked.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced() {
    let (listener, url) = listen().await;
    let (pool, budget) = (pool(), Budget::new(1));
    for _ in 0..10 {
        let (answer, ()) =
            tokio::join!(pool.exchange(get_within(&url, &budget), limits()), async {
                let (mut stream, _peer) = listener.accept().await.unwrap();
                let text = request(&mut stream).await.unwrap();
                assert!(text.starts_with("GET /v1/kv/a?raw HTTP/1.1\r\n"), "{text}");
                assert!(text.contains("host: 127.0.0.1:"), "{text}");
                stream.write_all(ANSWER).await.unwrap();
            });
        assert_eq!(answer.unwrap().status(), 200);
        // Until the close has arrived, a request may go out on it and get lost.
        while lock(&pool.parked).idle.iter().any(|(_since, it)| it.sender.is_ready()) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_proxy_gets_the_whole_url_and_its_credentials() {
    let (listener, url) = listen().await;
    let proxy = url.replace("http://", "http://user:planted@");
    let matcher = Matcher::builder().http(proxy).build();
    let consul = "http://consul.example.com:8500/v1/kv/a?raw";
    let proxy = matcher.intercept(&Uri::from_static(consul));
    assert!(proxy.is_some());
    let config = ClientConfig { address: "consul.example.com:8500".into(), ..Default::default() };
    let pool = pool_of(&config, proxy);
    assert!(!format!("{pool:?}").contains("planted"));
    let server = tokio::spawn(async move {
        let (mut stream, _peer) = listener.accept().await.unwrap();
        let mut heads = Vec::new();
        for _ in 0..2 {
            heads.push(request(&mut stream).await.unwrap());
            stream.write_all(ANSWER).await.unwrap();
        }
        heads
    });
    for _ in 0..2 {
        assert_eq!(pool.exchange(get(consul), limits()).await.unwrap().status(), 200);
    }
    for head in server.await.unwrap() {
        assert!(head.starts_with(&format!("GET {consul} HTTP/1.1\r\n")), "{head}");
        assert!(head.contains("host: consul.example.com:8500\r\n"), "{head}");
        assert!(head.contains("accept-encoding: gzip\r\n"), "{head}");
        // The base64 form of user:planted.
        assert!(head.contains("proxy-authorization: Basic dXNlcjpwbGFudGVk\r\n"), "{head}");
    }
}

#[tokio::test]
async fn a_compressed_answer_is_unpacked() {
    let mut zip = flate2::read::GzEncoder::new(&b"plain"[..], flate2::Compression::fast());
    let mut body = Vec::new();
    zip.read_to_end(&mut body).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(CONTENT_LENGTH, body.len().into());
    assert_eq!(unzip(&mut headers, body.clone().into()).unwrap(), "plain");
    assert!(headers.is_empty());
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    body.truncate(body.len() / 2);
    assert!(unzip(&mut headers, body.into()).is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_idle_for_long_is_closed() {
    let (listener, url) = listen().await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve(listener, accepted));
    let pool = pool();
    tokio::time::resume();
    pool.exchange(get(&url), limits()).await.unwrap();
    tokio::time::pause();
    assert_eq!(lock(&pool.parked).idle.len(), 1);
    sleep(Duration::from_mins(3)).await;
    assert!(lock(&pool.parked).idle.is_empty() && lock(&pool.parked).reaper.is_none());
    server.abort();
}

/// A pool that keeps connections as `change` says.
fn pool_with(change: impl FnOnce(&mut ConnectionConfig)) -> Pool {
    let mut config = ClientConfig::default();
    change(&mut config.connections);
    pool_of(&config, None)
}

#[tokio::test]
async fn connections_that_are_not_reused_serve_one_request_and_say_so() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut heads = Vec::new();
        for _ in 0..3 {
            let (mut stream, _peer) = listener.accept().await.unwrap();
            heads.push(request(&mut stream).await.unwrap());
            stream.write_all(ANSWER).await.unwrap();
            assert_eq!(request(&mut stream).await, None, "nothing more comes");
        }
        heads
    });
    let pool = pool_with(|kept| kept.reuse = false);
    for _ in 0..3 {
        pool.exchange(get(&url), limits()).await.unwrap();
    }
    assert!(lock(&pool.parked).idle.is_empty());
    for head in server.await.unwrap() {
        assert!(head.to_lowercase().contains("connection: close\r\n"), "{head}");
    }
}

/// As a `dial_timeout` of zero has it.
#[tokio::test]
async fn connecting_may_have_no_limit() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(serve(listener, Arc::default()));
    let config = ClientConfig { connect_timeout: Duration::MAX, ..ClientConfig::default() };
    pool_of(&config, None).exchange(get(&url), limits()).await.unwrap();
    server.abort();
}

#[tokio::test]
async fn no_more_idle_connections_are_kept_than_wanted() {
    for (most, kept) in [(Some(0), 0), (Some(2), 2), (None, 5)] {
        let (listener, url) = listen().await;
        let server = tokio::spawn(async move {
            let mut streams = Vec::new();
            for _ in 0..5 {
                streams.push(listener.accept().await.unwrap().0);
            }
            // All are in use at a time.
            for stream in &mut streams {
                request(stream).await.unwrap();
                stream.write_all(ANSWER).await.unwrap();
            }
            streams
        });
        let pool = pool_with(|kept| kept.max_idle = most);
        let exchanges = (0..5).map(|_| pool.exchange(get(&url), limits()));
        assert!(join_all(exchanges).await.iter().all(Result::is_ok));
        assert_eq!(lock(&pool.parked).idle.len(), kept, "{most:?}");
        drop(server.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_the_time_that_is_set_or_never() {
    for (idle, kept) in [(Some(Duration::from_secs(2)), 0), (None, 1)] {
        let (listener, url) = listen().await;
        let server = tokio::spawn(serve(listener, Arc::default()));
        let pool = pool_with(|kept| kept.idle_timeout = idle);
        tokio::time::resume();
        pool.exchange(get(&url), limits()).await.unwrap();
        tokio::time::pause();
        sleep(Duration::from_secs(4)).await;
        assert_eq!(lock(&pool.parked).idle.len(), kept, "{idle:?}");
        sleep(Duration::from_hours(10)).await;
        assert_eq!(lock(&pool.parked).idle.len(), kept, "{idle:?}");
        server.abort();
    }
}

/// Serves up to `most` connections at a time, and refuses others as Consul does: with an answer
/// and an end, or, before Consul 1.9, with an end alone.
async fn serve_few(listener: TcpListener, most: usize, silent: bool, refused: Arc<AtomicUsize>) {
    const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\n\
        Connection: close\r\n\r\nYour IP is issuing too many concurrent connections";
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let (mut stream, _peer) = listener.accept().await.unwrap();
        if open.fetch_add(1, Ordering::SeqCst) >= most {
            open.fetch_sub(1, Ordering::SeqCst);
            refused.fetch_add(1, Ordering::SeqCst);
            if !silent {
                drop(stream.write_all(REFUSAL).await);
            }
            continue;
        }
        let open = Arc::clone(&open);
        tokio::spawn(async move {
            while request(&mut stream).await.is_some() {
                sleep(Duration::from_millis(20)).await;
                if stream.write_all(ANSWER).await.is_err() {
                    break;
                }
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_teaches_the_limit_and_no_exchange_fails() {
    for silent in [false, true] {
        let (listener, url) = listen().await;
        let refused = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve_few(listener, 20, silent, Arc::clone(&refused)));
        let (pool, budget) = (pool(), Budget::new(64));
        for round in 0..3 {
            let all =
                join_all((0..200).map(|_| pool.exchange(get_within(&url, &budget), limits())));
            for answer in timeout(LIMIT, all).await.unwrap() {
                assert_eq!(answer.unwrap().status(), StatusCode::OK, "{silent}, round {round}");
            }
        }
        let left = 64 - budget.shortfall();
        assert!((12..=20).contains(&left), "{left} connections are used");
        let before = refused.load(Ordering::SeqCst);
        let all = join_all((0..100).map(|_| pool.exchange(get_within(&url, &budget), limits())));
        assert!(timeout(LIMIT, all).await.unwrap().iter().all(Result::is_ok));
        assert_eq!(refused.load(Ordering::SeqCst), before, "what was learned is kept");
    }
}

/// Reads the requests of `all` connections, answers `served` of them, and then ends every one.
async fn serve_and_stop(listener: TcpListener, served: usize, all: usize) -> TcpListener {
    let mut streams = Vec::new();
    for _ in 0..all {
        let (mut stream, _peer) = listener.accept().await.unwrap();
        assert!(request(&mut stream).await.is_some());
        streams.push(stream);
    }
    for stream in &mut streams[..served] {
        stream.write_all(ANSWER).await.unwrap();
    }
    listener
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_refuses_nobody() {
    for served in [0, 10, 19] {
        let (listener, url) = listen().await;
        let (pool, budget) = (pool(), Budget::new(64));
        let server = tokio::spawn(async move {
            let listener = serve_and_stop(listener, served, 20).await;
            serve(listener, Arc::default()).await;
        });
        let all = join_all((0..20).map(|_| pool.exchange(get_within(&url, &budget), limits())));
        for answer in timeout(LIMIT, all).await.unwrap() {
            assert_eq!(answer.unwrap().status(), StatusCode::OK, "{served} were served before");
        }
        assert_eq!(budget.shortfall(), 0, "{served} were served before");
        server.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_that_come_together_are_one_event() {
    let connections = Arc::new(Connections::default());
    let all: Vec<_> = (0..30).map(|_| connections.open()).collect();
    for open in &all[..20] {
        open.served();
    }
    let counts = join_all(all[20..].iter().map(|open| open.refused(true))).await;
    let counts: Vec<_> = counts.into_iter().flatten().collect();
    assert_eq!(counts, [20]);
    // One that was opened with them, and whose refusal was noticed late.
    assert_eq!(all[20].refused(true).await, None);
    let later = connections.open();
    assert_eq!(later.refused(true).await, Some(30), "the next event: none is closed yet");
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_given_up_leaves_the_next_one_whole() {
    let connections = Arc::new(Connections::default());
    let all: Vec<_> = (0..10).map(|_| connections.open()).collect();
    assert!(timeout(Duration::from_millis(5), all[9].refused(false)).await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(all[8].refused(false).await, Some(9));
}

#[tokio::test(start_paused = true)]
async fn refusals_that_closed_connections_explain_say_nothing() {
    let connections = Arc::new(Connections::default());
    let many = |number: usize| (0..number).map(|_| connections.open()).collect::<Vec<_>>();
    let (old, young) = (many(100), many(30));
    drop(old);
    assert_eq!(young[0].refused(true).await, None, "the server has not noticed the closed ones");
    let (served, late) = (many(20), many(5));
    for open in &served {
        open.served();
    }
    sleep(LINGERING).await;
    let all = young[1..].len() + served.len() + late.len();
    let counts = join_all(late.iter().map(|open| open.refused(true))).await;
    // The one that was refused first is not closed yet.
    assert_eq!(counts.into_iter().flatten().collect::<Vec<_>>(), [all + 1 - 5]);
}
