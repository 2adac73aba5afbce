//! Upper bounds of what clients of the HTTP API may take: connections,
//! requests, bytes and time.

use std::{sync::Arc, time::Duration};

use consul_watch::testing::Log;
use cts_tasks::Single;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{api::Api, config::support::try_load, scene::Scene};

/// Both ends of the connections are in this process.
fn raise_descriptors() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    }
    assert!(hard >= 4096, "this test needs 4096 descriptors: the hard limit is {hard}");
}

/// Sends the beginning of a request, and no more.
async fn slow(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: a").await.unwrap();
    stream
}

fn address(api: &Api) -> &str {
    api.url.trim_start_matches("http://")
}

/// Fills a server with slow clients of one address, more than it lets one have, and asks it for
/// its health. Returns `false` if the time for a head was over first, which a slow client of
/// another server tells.
async fn health_comes_before_slow_clients_are_cut() -> bool {
    let scene = Scene::new();
    let (api, quiet) =
        tokio::join!(Api::serve(&scene, Arc::new(Single)), Api::serve(&scene, Arc::new(Single)));
    let mut clock = slow(address(&quiet)).await;
    let answered = async {
        let mut crowd = Vec::new();
        for _ in 0..600 {
            crowd.push(slow(address(&api)).await);
        }
        // As soon as connections are cut for others, the server is as full as it gets.
        let _cut = crowd[0].read_to_end(&mut Vec::new()).await;
        for _ in 0..20 {
            // Each with a connection of its own.
            let client = reqwest::Client::new();
            let answer = client.get(format!("{}/v1/health", api.url)).send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
    };
    let mut end = [0];
    tokio::select! {
        biased;
        () = answered => true,
        _ = clock.read(&mut end) => false,
    }
}

/// Before, 1024 half-open connections kept all others waiting until their time was over. A machine
/// under load may be slower than that time now and then, but not each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_is_answered_while_slow_clients_are_held_open() {
    raise_descriptors();
    for _ in 0..5 {
        if health_comes_before_slow_clients_are_cut().await {
            return;
        }
    }
    panic!("the health waits until slow clients are cut for their slowness");
}

/// Before, a head had 15 s.
#[tokio::test]
async fn a_head_that_does_not_come_within_five_seconds_is_cut() {
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    let address = api.url.trim_start_matches("http://").to_owned();
    let begun = Instant::now();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"GET /v1/status HTTP/1.1\r\n").await.unwrap();
    let mut rest = Vec::new();
    let cut = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(
        cut.is_ok() && rest.is_empty() && begun.elapsed() >= Duration::from_secs(4),
        "{rest:?}"
    );
}

#[tokio::test]
async fn a_body_and_a_head_that_are_too_large_are_refused() {
    let scene = Scene::new();
    let api = Api::serve_with(&scene, try_load("port = 0").unwrap().rules).await;
    let body = format!("{{\"task\": {:?}}}", "x".repeat(5 * 1024 * 1024));
    assert_eq!(api.send(Method::POST, "/v1/tasks", body).await.0, 413);
    let request = api.http.get(format!("{}/v1/status", api.url));
    let answer = request.header("x-long", "x".repeat(128 * 1024)).send().await;
    if let Ok(answer) = answer {
        assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
}

/// Requests whose bodies never come, so that they are being answered.
async fn unfinished(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "PATCH /v1/tasks/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 17\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn changes_beyond_the_bound_are_refused_and_reads_go_on() {
    raise_descriptors();
    let log = Log::start();
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    let address = api.url.trim_start_matches("http://").to_owned();
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(unfinished(&address).await);
    }
    while log.with("received request").len() < 64 {
        sleep(Duration::from_millis(5)).await;
    }
    let update = api.http.patch(format!("{}/v1/tasks/t", api.url)).body("{}");
    let answer = update.send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(api.get("/v1/status").await.0, 200);
    assert_eq!(api.get("/v1/health").await.0, 200);
    // A client that has gone makes room.
    drop(held);
    let free = async {
        loop {
            let (status, _) = api.send(Method::PATCH, "/v1/tasks/t", "{}".into()).await;
            if status != 503 {
                return status;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(Duration::from_secs(20), free).await.unwrap(), 400);
}
