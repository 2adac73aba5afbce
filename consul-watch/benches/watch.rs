//! What a watch costs: its delay beside a bare HTTP loop, and its memory.
//!
//! `cargo bench -p consul-watch` prints both. The delay is measured on a real
//! Consul where there is one, else on the double; memory on a transport that
//! holds every request, so that only this crate's side is counted.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport, Watcher,
    client::PutOptions,
    query::{HealthService, KvGet},
    testing::{ServedConsul, TestConsul, parts, real},
    transport::{ExchangeLimits, TransportError},
};
use tokio::{sync::mpsc, time::Instant};

const ROUNDS: usize = 150;
/// Longer than the rate limit, as changes of a real service are.
const PAUSE: Duration = Duration::from_millis(120);

fn main() {
    // `cargo test --benches` asks for a run that measures nothing.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        memory().await;
        delay().await;
    });
}

enum Consul {
    Real(real::Consul),
    Double(ServedConsul),
}

async fn delay() {
    let part = parts::find("consul");
    let whom = part.as_ref().map_or("the double (no Consul found)".to_owned(), |part| {
        format!("Consul {}", part.version)
    });
    println!("delay from a change in {whom} to its news, {ROUNDS} changes each:");
    let consul = match part {
        Some(part) => Consul::Real(real::Consul::start(&part.path).await.unwrap()),
        None => Consul::Double(TestConsul::new().serve().await.unwrap()),
    };
    let (client, address) = match &consul {
        Consul::Real(consul) => (consul.client(), consul.address()),
        Consul::Double(consul) => (consul.client(), consul.address()),
    };
    let options = PutOptions::default();
    for key in ["bare", "watch"] {
        client.kv_put(key, "start", &options).await.unwrap();
    }
    let (sender, mut bare_news) = mpsc::channel(16);
    let bare = tokio::spawn(bare_loop(format!("http://{address}/v1/kv/bare"), sender));
    let (sender, mut watch_news) = mpsc::channel(16);
    let watch = tokio::spawn(watch_loop(Watcher::new(client.clone()), sender));
    watch_news.recv().await.unwrap();
    bare_news.recv().await.unwrap();

    let (mut bare_times, mut watch_times) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let kinds = [
            ("bare", &mut bare_news, &mut bare_times),
            ("watch", &mut watch_news, &mut watch_times),
        ];
        for (key, news, times) in kinds {
            tokio::time::sleep(PAUSE).await;
            let start = Instant::now();
            client.kv_put(key, round.to_string(), &options).await.unwrap();
            times.push(news.recv().await.unwrap() - start);
        }
    }
    bare.abort();
    watch.abort();
    let (bare, ours) = (Percentiles::of(bare_times), Percentiles::of(watch_times));
    println!("  {:<28}{:>10}{:>10}", "", "p50", "p99");
    println!(
        "  {:<28}{:>8} us{:>8} us",
        "bare reqwest loop",
        bare.p50.as_micros(),
        bare.p99.as_micros()
    );
    println!("  {:<28}{:>8} us{:>8} us", "Watch", ours.p50.as_micros(), ours.p99.as_micros());
    let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
    println!(
        "  {:<28}{:>10.2}{:>10.2}",
        "ratio",
        ratio(ours.p50, bare.p50),
        ratio(ours.p99, bare.p99)
    );
}

/// The same blocking query by hand: no reset, no comparison, no retry.
async fn bare_loop(url: String, news: mpsc::Sender<Instant>) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut index = String::new();
    loop {
        let target = if index.is_empty() {
            url.clone()
        } else {
            format!("{url}?index={index}&wait=60000ms")
        };
        let answer = http.get(target).send().await.unwrap();
        index = answer.headers().get("x-consul-index").unwrap().to_str().unwrap().to_owned();
        let body = answer.bytes().await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        if news.send(Instant::now()).await.is_err() {
            return;
        }
    }
}

async fn watch_loop(watcher: Watcher, news: mpsc::Sender<Instant>) {
    let mut watch = watcher.watch(KvGet::new("watch"));
    loop {
        watch.changed().await.unwrap();
        if news.send(Instant::now()).await.is_err() {
            return;
        }
    }
}

struct Percentiles {
    p50: Duration,
    p99: Duration,
}

impl Percentiles {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at =
            |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Self { p50: at(50), p99: at(99) }
    }
}

/// Answers a first read with nothing and holds every other.
#[derive(Debug, Default)]
struct Holding {
    held: AtomicUsize,
}

#[async_trait]
impl Transport for Holding {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        _limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        if request.uri().query().is_some_and(|query| query.contains("index=")) {
            self.held.fetch_add(1, Ordering::Relaxed);
            drop(request);
            std::future::pending::<()>().await;
        }
        let mut answer = http::Response::new(Bytes::from_static(b"[]"));
        answer.headers_mut().insert("x-consul-index", http::HeaderValue::from_static("5"));
        Ok(answer)
    }
}

async fn memory() {
    let transport = Arc::new(Holding::default());
    let shared: Arc<dyn Transport> = Arc::<Holding>::clone(&transport);
    // A connection for each view: past a budget they would share broad queries.
    let client = Client::with_transport(ClientConfig::default(), shared).unwrap();
    let watcher = Watcher::builder(client).connections(20_000).build();
    let mut views = Vec::with_capacity(10_000);
    println!("memory of idle views, with their subscriber and blocked read:");
    let before = resident();
    for count in [1_000, 10_000] {
        while views.len() < count {
            views.push(
                watcher.watch(HealthService::new(format!("service-{}", views.len())).passing()),
            );
        }
        while transport.held.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let used = resident().saturating_sub(before);
        println!(
            "  {count:>6} views: {:>8} KiB in all, {:>6} bytes each",
            used / 1024,
            used / count
        );
    }
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: usize = line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0);
    kilobytes * 1024
}
