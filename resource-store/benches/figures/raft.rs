//! Writes to a Raft node of its own, whose log is in segment files, beside the durable backend,
//! which writes a B-tree: in turns, so that both see the same disk.

use std::{path::Path, sync::Arc, time::Duration};

use resource_store::{
    backend::{
        Backend,
        durable::{DurableBackend, DurableOptions},
        raft::{RaftBackend, RaftConfig, Start},
    },
    pb,
};
use tokio::{task::JoinSet, time::Instant};

use super::{artist, print};

/// Turns that each backend gets for each number of writers.
const TURNS: usize = 5;
const TURN: Duration = Duration::from_secs(2);

/// Writes of one turn, and calls to the system that wrote anything.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    per_second: f64,
    calls_per_write: f64,
}

pub(crate) async fn figures() {
    for writers in [1, 16, 64] {
        let (mut raft, mut durable) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let folder = tempfile::tempdir().unwrap();
            raft.push(raft_turn(folder.path(), writers).await);
            durable.push(durable_turn(&folder.path().join("writes.redb"), writers).await);
        }
        let (raft, durable) = (median(raft), median(durable));
        let figure = format!(
            "{:.0} a second, {:.2} of the durable backend's {:.0}; write calls {:.2} each, {:.2} there",
            raft.per_second,
            raft.per_second / durable.per_second,
            durable.per_second,
            raft.calls_per_write,
            durable.calls_per_write,
        );
        print(&format!("raft write, one node, {writers} writers"), &figure);
    }
}

fn median(mut turns: Vec<Turn>) -> Turn {
    turns.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}

async fn raft_turn(folder: &Path, writers: usize) -> Turn {
    let config = RaftConfig::new(folder.join("node"), "127.0.0.1:0");
    let node = RaftBackend::start(config, Start::Bootstrap).await.unwrap();
    let turn = turn(Arc::new(node.clone()), writers).await;
    node.shutdown().await;
    turn
}

async fn durable_turn(file: &Path, writers: usize) -> Turn {
    let store = DurableBackend::open(file, DurableOptions::default()).await.unwrap();
    let turn = turn(Arc::new(store.clone()), writers).await;
    store.close().await.unwrap();
    turn
}

/// Writers that change a resource of their own.
async fn turn(store: Arc<dyn Backend>, writers: usize) -> Turn {
    let (started, calls) = (Instant::now(), write_calls());
    let mut set = JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(&store);
        set.spawn(async move {
            let mut count = 0_u32;
            let mut stored = store.write_cas(artist(writer)).await.unwrap();
            while started.elapsed() < TURN {
                stored = store.write_cas(pb::Resource::clone(&stored)).await.unwrap();
                count += 1;
            }
            count
        });
    }
    let count = f64::from(set.join_all().await.into_iter().sum::<u32>());
    Turn {
        per_second: count / started.elapsed().as_secs_f64(),
        calls_per_write: (write_calls() - calls) / count,
    }
}

/// Calls of this process to the system that wrote to a file or socket, on Linux.
fn write_calls() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let calls = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(f64::NAN)
}
