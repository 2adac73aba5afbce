//! The backend in memory with one thread and with two: whether writers, readers, lists and
//! watchers meet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _};
use resource_store::{
    ResourceData as _,
    backend::{Backend, Consistency, Query, WatchEvent, memory::MemoryBackend},
    demo::{self, v2::Artist},
    pb,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
    task::JoinSet,
    time::Instant,
};

use super::{artist, name, percentiles, print};

const COUNT: usize = 100_000;
const TURN: Duration = Duration::from_millis(1500);
const WATCHERS: usize = 1000;
const CHANGES: usize = 500;

pub(crate) fn figures() {
    let mut before = Vec::new();
    for threads in [1, 2] {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let rates = one(&runtime.unwrap(), threads);
        for ((what, rate), (_, alone)) in rates.iter().zip(&before) {
            print(&format!("{what}, two threads by one"), &format!("{:.2}", rate / alone));
        }
        before = rates;
    }
}

/// Measures with so many threads, and gives the rates by what was measured.
fn one(runtime: &Runtime, threads: usize) -> Vec<(&'static str, f64)> {
    let store = MemoryBackend::new();
    let stored: Vec<_> = (0..COUNT).map(|i| now(store.write_cas(artist(i)))).collect();
    let part = COUNT / threads;
    let mut rates = Vec::new();
    let mut measure = |what, each: &(dyn Fn(usize, usize, &mut Own) + Sync)| {
        let rate = scaled(threads, &stored, each);
        let time = 1e6 * f64::from(u32::try_from(threads).unwrap()) / rate;
        print(&format!("{what}, {threads} threads"), &format!("{rate:.0}/s, {time:.3} µs each"));
        rates.push((what, rate));
    };
    measure("memory read", &|thread, i, own| {
        let id = own[thread * part + i * 31 % part].id.as_ref().unwrap();
        now(store.read(Consistency::Eventual, id));
    });
    let put = |at: usize, own: &mut Own| {
        own[at] = now(store.write_cas(pb::Resource::clone(&own[at])));
    };
    measure("memory write", &|thread, i, own| put(thread * part + i * 31 % part, own));
    let all: Vec<_> = now(store.list(Consistency::Strong, &query("artist-")));
    let rate = scaled(threads, &all, &|thread, i, own: &mut Own| {
        put((i * threads + thread) % (part * threads), own);
    });
    print(&format!("memory write of neighbours, {threads} threads"), &format!("{rate:.0}/s"));
    let rate = scaled(threads, &all, &|thread, i, own: &mut Own| {
        let id = own[thread * part + i * 31 % part].id.as_ref().unwrap();
        let known = now(store.read(Consistency::Eventual, id));
        now(store.write_cas(pb::Resource::clone(&known)));
    });
    print(&format!("memory read and write, {threads} threads"), &format!("{rate:.0}/s"));
    let thousand = query("artist-00005");
    let list = |_: usize, _: usize, _: &mut Own| {
        assert_eq!(now(store.list(Consistency::Strong, &thousand)).len(), 1000);
    };
    let lists = |what, rate: f64, threads: f64| {
        let time = 1e6 * threads / rate;
        print(what, &format!("{time:.1} µs each"));
    };
    let rate = scaled(threads, &all, &list);
    let figure = format!("memory list of 1000, {threads} threads");
    lists(&figure, rate, f64::from(u32::try_from(threads).unwrap()));
    if threads > 1 {
        let (listed, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let all: Vec<_> = now(store.list(Consistency::Strong, &query("artist-")));
        scaled(2, &all, &|thread, i, own: &mut Own| {
            if thread == 0 {
                list(thread, i, own);
                listed.fetch_add(1, Ordering::Relaxed);
            } else {
                put(i * 31 % COUNT, own);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let per_second = |count: &AtomicUsize| {
            f64::from(u32::try_from(count.load(Ordering::Relaxed)).unwrap()) / TURN.as_secs_f64()
        };
        lists("memory list of 1000 beside a writer", per_second(&listed), 1.0);
        print("writes beside it", &format!("{:.0}/s", per_second(&written)));
    }
    let times = runtime.block_on(fan_out(store.clone()));
    print(
        &format!("memory to the last of {WATCHERS} watchers, {threads} threads"),
        &percentiles(times),
    );
    rates
}

/// What a thread knows to be stored.
type Own = Vec<Arc<pb::Resource>>;

/// Runs `each` in so many threads for a while, and gives how often a second.
fn scaled(
    threads: usize,
    stored: &[Arc<pb::Resource>],
    each: &(dyn Fn(usize, usize, &mut Own) + Sync),
) -> f64 {
    let total = AtomicUsize::new(0);
    let all_ready = std::sync::Barrier::new(threads);
    let took = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let (total, all_ready) = (&total, &all_ready);
            scope.spawn(move || {
                let mut own = stored.to_vec();
                all_ready.wait();
                let started = Instant::now();
                let mut i = 0;
                while i % 64 != 0 || started.elapsed() < TURN {
                    each(thread, i, &mut own);
                    i += 1;
                }
                total.fetch_add(i, Ordering::Relaxed);
                started.elapsed()
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).max()
    });
    f64::from(u32::try_from(total.into_inner()).unwrap()) / took.unwrap_or_default().as_secs_f64()
}

/// Returns what a call to the backend in memory gives, which never waits.
fn now<T>(call: impl Future<Output = resource_store::backend::Result<T>>) -> T {
    call.now_or_never().unwrap().unwrap()
}

fn query(prefix: &str) -> Query {
    Query::new(Artist::resource_type().group_kind(), demo::default_tenancy())
        .with_name_prefix(prefix)
}

/// Measures from a write to the last watcher.
async fn fan_out(store: MemoryBackend) -> Vec<Duration> {
    let (left, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut set = JoinSet::new();
    for _ in 0..WATCHERS {
        let mut watch = store.watch_list(&query(&name(1))).await.unwrap();
        while watch.next().await.unwrap().unwrap() != WatchEvent::EndOfSnapshot {}
        let (left, done) = (Arc::clone(&left), Arc::clone(&done));
        set.spawn(async move {
            while let Some(Ok(_)) = watch.next().await {
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    done.notify_one();
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // In a task, as the watchers are.
    let writer = tokio::spawn(async move {
        let mut times = Vec::new();
        let id = artist(1).id.unwrap();
        for _ in 0..CHANGES {
            let known = store.read(Consistency::Strong, &id.clone().without_uid()).await.unwrap();
            left.store(WATCHERS, Ordering::Release);
            let started = Instant::now();
            store.write_cas(pb::Resource::clone(&known)).await.unwrap();
            done.notified().await;
            times.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times
    });
    let times = writer.await.unwrap();
    set.shutdown().await;
    times
}
