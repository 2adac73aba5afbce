//! Three nodes of `resource-server --raft` beside three of etcd: writes, reads
//! and the time to another leader.
//!
//! `cargo bench -p resource-server --bench cluster [-- LOAD]`
//!
//! Both run on this machine, at the same time, with their files in the same
//! folder, and write each change to the disk before they acknowledge it. The
//! same clients, each with a connection of its own, and spread over the nodes,
//! load one and then the other, in turns. A write replaces a value under the
//! condition that it is the one last written; reads are linearizable, and then
//! those that one node answers by itself. Ratios above 1 are in our favour.
//!
//! `SECONDS` is how long one measurement takes (3), `ROUNDS` how many of each
//! are made (3), `VALUE` the size of a value in bytes (1024), `FAILOVERS` how
//! often the leader is killed (5). The newest etcd is taken that is there.
//! `LOAD` selects the loads whose line contains it, such as `reads` or `writes 16`.
//! `RESOURCES` values more are stored if it is given, and then the memory of the
//! largest node is printed, and how long a follower takes that is killed and
//! started again. `ENTRIES` writes are made to a few values before that if it is
//! given, each an entry of the log, which both cut off behind snapshots of their
//! own; `RESTARTS` is how often each restarts a follower (5), in turns.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a bench: it panics to fail, and prints"
)]

mod etcd;
mod measure;
#[path = "../../tests/it/store_cluster/node.rs"]
mod node;
#[path = "../../../../resource-store/tests/it/etcd/operation.rs"]
mod operation;
mod ours;
#[path = "../../../../resource-store/tests/it/etcd/server.rs"]
mod server;

use std::{sync::Arc, time::Duration};

use consul_watch::testing::parts;

use self::{
    etcd::Etcd,
    measure::{Sample, Store, Work, failover, fill, load, median, overwrite, restart},
    ours::Ours,
};

/// How many clients work at a time.
const CLIENTS: [usize; 3] = [1, 16, 64];

struct Settings {
    time: Duration,
    rounds: usize,
    value: usize,
    failovers: usize,
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[tokio::main]
async fn main() {
    let settings = Settings {
        time: Duration::from_secs(setting("SECONDS", 3).try_into().unwrap()),
        rounds: setting("ROUNDS", 3),
        value: setting("VALUE", 1024),
        failovers: setting("FAILOVERS", 5),
    };
    let Some(part) = parts::find_all("etcd").pop() else {
        println!("there is no etcd to compare with; scripts/setup-tools fetches it");
        return;
    };
    let etcd = Arc::new(Etcd::start(&part.path, settings.value).await);
    let ours = Arc::new(Ours::start(settings.value).await);
    println!(
        "etcd {}, {} rounds of {} s each, values of {} bytes",
        part.version,
        settings.rounds,
        settings.time.as_secs(),
        settings.value
    );
    println!(
        "{:<22} {:>7} {:>10} {:>10} {:>6} {:>19} {:>19} {:>15}",
        "",
        "clients",
        "ours/s",
        "etcd/s",
        "ratio",
        "ours p50/p99 ms",
        "etcd p50/p99 ms",
        "CPU us ours/etcd"
    );
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for clients in CLIENTS {
        for work in [Work::Write, Work::StrongRead, Work::LocalRead] {
            let line = format!("{} {clients} ", work.name());
            if only.as_ref().is_some_and(|only| !line.contains(only)) {
                continue;
            }
            compare(&settings, &ours, &etcd, clients, work).await;
        }
    }
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..settings.failovers {
        our_times.push(failover(&*ours).await);
        their_times.push(failover(&*etcd).await);
    }
    if settings.failovers > 0 {
        println!("time from the death of the leader to the next acknowledged write, ms:");
        println!("  ours {our_times:?}, median {}", median(our_times.clone()));
        println!("  etcd {their_times:?}, median {}", median(their_times.clone()));
        let ratio = ratio(median(their_times), median(our_times));
        println!("  ratio {ratio:.2}");
    }
    let resources = setting("RESOURCES", 0);
    if resources > 0 {
        let (our, their) = (fill(&ours, resources).await, fill(&etcd, resources).await);
        println!("memory with {resources} values more, KiB: ours {our}, etcd {their}");
    }
    let entries = setting("ENTRIES", 0);
    if entries > 0 {
        let (our, their) = (overwrite(&ours, entries).await, overwrite(&etcd, entries).await);
        println!("{entries} writes, each an entry of the log, s: ours {our}, etcd {their}");
        println!("files of one node, MB: ours {}, etcd {}", ours.disk_mb(), etcd.disk_mb());
    }
    if resources > 0 || entries > 0 {
        restarts(&ours, &etcd, setting("RESTARTS", 5)).await;
    }
    ours.stop().await;
}

/// Kills followers and starts them again, in turns, so that both meet the same machine.
async fn restarts(ours: &Ours, etcd: &Etcd, count: usize) {
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..count {
        our_times.push(restart(ours).await);
        their_times.push(restart(etcd).await);
    }
    if count > 0 {
        let (our, their) = (median(our_times.clone()), median(their_times.clone()));
        println!("until a follower is back after kill -9, ms:");
        println!("  ours {our_times:?}, median {our}");
        println!("  etcd {their_times:?}, median {their}");
        println!("  ratio {:.2}", ratio(their, our));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn ratio(of: u128, to: u128) -> f64 {
    of as f64 / to.max(1) as f64
}

async fn compare(
    settings: &Settings,
    ours: &Arc<Ours>,
    etcd: &Arc<Etcd>,
    clients: usize,
    work: Work,
) {
    let (mut our_samples, mut their_samples) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        our_samples.push(load(ours, clients, work, settings.time).await);
        their_samples.push(load(etcd, clients, work, settings.time).await);
    }
    let our = Sample::median(&our_samples);
    let their = Sample::median(&their_samples);
    let times = |sample: &Sample| format!("{:.2} / {:.2}", sample.p50, sample.p99);
    println!(
        "{:<22} {clients:>7} {:>10.0} {:>10.0} {:>6.2} {:>19} {:>19} {:>7.0}/{:<7.0}",
        work.name(),
        our.per_second,
        their.per_second,
        our.per_second / their.per_second,
        times(&our),
        times(&their),
        our.cpu,
        their.cpu
    );
}
