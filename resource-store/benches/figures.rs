//! Prints how fast the store is in one process.
//!
//! `cargo bench -p resource-store --all-features`; `-- N` sets how many resources
//! there are (100,000 by default); `-- durable` leaves it at the durable backend,
//! `-- raft` at writes to a Raft node beside it, `-- watches` at a write among
//! many watches, `-- threads` at the backend in memory with one thread and with two, and
//! `-- backends` at every backend under the same load.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people at a terminal"
)]

#[path = "figures/backends.rs"]
mod backends;
#[cfg(feature = "durable")]
#[path = "figures/durable.rs"]
mod durable;
#[cfg(feature = "raft")]
#[path = "figures/raft.rs"]
mod raft;
#[path = "figures/threads.rs"]
mod threads;
#[path = "figures/watches.rs"]
mod watches;

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt as _;
use resource_store::{
    LocalClient, Registry, RequestContext, ResourceData as _, ResourceService,
    backend::{Backend, Consistency, WatchEvent, memory::MemoryBackend},
    controller::{BoxError, Controller, Manager, Outcome, Reconciler, Request, Runtime},
    demo::{self, v2::Artist},
    pb,
};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

fn main() {
    let count = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let only = |part: &str| std::env::args().any(|arg| arg == part);
    let parts = ["backends", "durable", "raft", "threads", "watches"];
    let all = !parts.into_iter().any(only);
    let mut arguments = std::env::args().skip_while(|argument| argument != backends::ONE);
    if arguments.next().is_some() {
        let name = arguments.next().unwrap_or_default();
        return runtime.block_on(backends::one(&name));
    }
    if all || only("threads") {
        threads::figures();
    }
    if all || only("backends") {
        backends::figures();
    }
    runtime.block_on(async {
        if all {
            figures(count).await;
        }
        if all || only("watches") {
            watches::figures().await;
        }
        #[cfg(feature = "durable")]
        if all || only("durable") {
            durable::figures().await;
        }
        #[cfg(feature = "raft")]
        if all || only("raft") {
            raft::figures().await;
        }
    });
}

/// A service over memory with `count` artists, of which each tenth is owned by
/// the first.
struct Bench {
    backend: MemoryBackend,
    service: ResourceService,
    count: usize,
    first: Arc<pb::Resource>,
}

fn name(i: usize) -> String {
    format!("artist-{i:08}")
}

fn artist(i: usize) -> pb::Resource {
    demo::artist(&name(i)).encode()
}

impl Bench {
    async fn new(count: usize) -> Self {
        let backend = MemoryBackend::new();
        let mut registry = Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let service = ResourceService::builder(registry, Arc::new(backend.clone())).build();
        let before = resident_bytes();
        let started = Instant::now();
        let context = RequestContext::anonymous();
        let request = |resource| pb::WriteRequest { resource: Some(resource) };
        let first = service.write(&context, request(artist(0))).await.unwrap();
        for i in 1..count {
            let owner = if i % 10 == 0 { first.id.clone() } else { None };
            service.write(&context, request(pb::Resource { owner, ..artist(i) })).await.unwrap();
        }
        print("create one by one", &rate(count, started.elapsed()));
        let bytes = resident_bytes().saturating_sub(before) / count;
        print("memory", &format!("{bytes} bytes for each resource"));
        Self { backend, service, count, first }
    }

    fn read_request(&self, i: usize) -> pb::ReadRequest {
        pb::ReadRequest { id: Some(demo::artist(&name(i % self.count)).id) }
    }
}

async fn figures(count: usize) {
    println!("{count} resources, 2 threads");
    let bench = Arc::new(Bench::new(count).await);
    for tasks in [1, 2, 4, 8] {
        print(&format!("service read, {tasks} tasks"), &scaled(&bench, tasks, 200_000, read).await);
        print(
            &format!("backend read, {tasks} tasks"),
            &scaled(&bench, tasks, 400_000, backend_read).await,
        );
        print(
            &format!("service write, {tasks} tasks"),
            &scaled(&bench, tasks, 50_000, write).await,
        );
        print(
            &format!("backend write-CAS, {tasks} tasks"),
            &scaled(&bench, tasks, 50_000, backend_write).await,
        );
    }
    list(&bench).await;
    list_by_owner(&bench).await;
    fan_out(&bench).await;
    reconcile(&bench).await;
}

/// Runs `each` in several tasks, `total` times in all.
async fn scaled<F>(
    bench: &Arc<Bench>,
    tasks: usize,
    total: usize,
    each: fn(Arc<Bench>, usize, usize) -> F,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    let mut set = JoinSet::new();
    for task in 0..tasks {
        set.spawn(each(Arc::clone(bench), task, total / tasks));
    }
    set.join_all().await;
    rate(total, started.elapsed())
}

async fn read(bench: Arc<Bench>, task: usize, times: usize) {
    let context = RequestContext::anonymous();
    for i in 0..times {
        bench.service.read(&context, bench.read_request(task * 7919 + i * 31)).await.unwrap();
    }
}

async fn backend_read(bench: Arc<Bench>, task: usize, times: usize) {
    let mut id = bench.first.id.clone().unwrap().without_uid();
    for i in 0..times {
        id.name = name((task * 7919 + i * 31) % bench.count);
        bench.backend.read(Consistency::Eventual, &id).await.unwrap();
    }
}

async fn write(bench: Arc<Bench>, task: usize, times: usize) {
    let context = RequestContext::anonymous();
    for i in 0..times {
        let id = bench.read_request(task + i * 8).id;
        let stored = bench.service.read(&context, pb::ReadRequest { id }).await.unwrap();
        let resource =
            Some(pb::Resource { version: String::new(), ..pb::Resource::clone(&stored) });
        bench.service.write(&context, pb::WriteRequest { resource }).await.unwrap();
    }
}

async fn backend_write(bench: Arc<Bench>, task: usize, times: usize) {
    let mut id = bench.first.id.clone().unwrap().without_uid();
    for i in 0..times {
        id.name = name((task + i * 8) % bench.count);
        let stored = bench.backend.read(Consistency::Eventual, &id).await.unwrap();
        // Tasks meet where the names wrap around: then one is refused.
        drop(bench.backend.write_cas(pb::Resource::clone(&stored)).await);
    }
}

async fn list(bench: &Bench) {
    let request = pb::ListRequest {
        r#type: Some(Artist::resource_type()),
        tenancy: Some(demo::default_tenancy()),
        name_prefix: "artist-0000".to_owned(),
    };
    let context = RequestContext::anonymous();
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..20 {
        let started = Instant::now();
        found = bench.service.list(&context, request.clone()).await.unwrap().len();
        times.push(started.elapsed());
    }
    print(&format!("list of {found}"), &percentiles(times));
}

async fn list_by_owner(bench: &Bench) {
    let context = RequestContext::anonymous();
    let request = pb::ListByOwnerRequest { owner: bench.first.id.clone() };
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..20 {
        let started = Instant::now();
        found = bench.service.list_by_owner(&context, request.clone()).await.unwrap().len();
        times.push(started.elapsed());
    }
    print(&format!("list by owner of {found}"), &percentiles(times));
}

/// From a write to the last of 1,000 watchers.
async fn fan_out(bench: &Bench) {
    const WATCHERS: usize = 1000;
    let (sender, mut receiver) = mpsc::channel::<Instant>(WATCHERS);
    let mut set = JoinSet::new();
    for _ in 0..WATCHERS {
        let request = pb::WatchListRequest {
            r#type: Some(Artist::resource_type()),
            tenancy: Some(demo::default_tenancy()),
            name_prefix: name(1),
        };
        let mut watch =
            bench.service.watch_list(&RequestContext::anonymous(), request).await.unwrap();
        while watch.next().await.unwrap().unwrap() != WatchEvent::EndOfSnapshot {}
        let sender = sender.clone();
        set.spawn(async move {
            while let Some(Ok(_)) = watch.next().await {
                sender.send(Instant::now()).await.unwrap();
            }
        });
    }
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        let resource = Some(artist(1));
        bench
            .service
            .write(&RequestContext::anonymous(), pb::WriteRequest { resource })
            .await
            .unwrap();
        let mut last = started;
        for _ in 0..WATCHERS {
            last = last.max(receiver.recv().await.unwrap());
        }
        times.push(last - started);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    set.abort_all();
    print(&format!("write to the last of {WATCHERS} watchers"), &percentiles(times));
}

#[derive(Debug)]
struct Report(mpsc::Sender<Instant>);

#[async_trait]
impl Reconciler for Report {
    async fn reconcile(&self, _: &Runtime, _: &Request) -> Result<Outcome, BoxError> {
        self.0.send(Instant::now()).await?;
        Ok(Outcome::Done)
    }
}

/// From a write to its reconcile, with all resources in the cache.
async fn reconcile(bench: &Bench) {
    let (sender, mut receiver) = mpsc::channel(1024);
    let controller =
        Controller::new("bench", Artist::resource_type()).with_reconciler(Report(sender));
    let mut manager = Manager::new(LocalClient::new(bench.service.clone()));
    manager.register(controller).unwrap();
    let stop = CancellationToken::new();
    let started = Instant::now();
    let task = tokio::spawn(manager.run(stop.clone()));
    for _ in 0..bench.count {
        receiver.recv().await.unwrap();
    }
    print("first reconcile of all", &rate(bench.count, started.elapsed()));
    let mut times = Vec::new();
    for i in 0..1000 {
        let started = Instant::now();
        let resource = Some(artist((i * 10 + 1) % bench.count));
        bench
            .service
            .write(&RequestContext::anonymous(), pb::WriteRequest { resource })
            .await
            .unwrap();
        times.push(receiver.recv().await.unwrap() - started);
    }
    print("write to reconcile", &percentiles(times));
    stop.cancel();
    task.await.unwrap().unwrap();
}

fn rate(count: usize, time: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let per_second = count as f64 / time.as_secs_f64();
    format!("{per_second:.0}/s")
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    format!("p50 {:?}, p99 {:?}", at(50), at(99))
}

fn print(what: &str, figure: &str) {
    println!("{what:<40} {figure}");
}

/// The memory of this process, as Linux tells it.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or_default() * 1024
}
