//! Loading a store, whichever it is, and measuring that.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Write,
    StrongRead,
    LocalRead,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "conditional writes",
            Self::StrongRead => "linearizable reads",
            Self::LocalRead => "reads of one node",
        }
    }
}

/// A cluster of three.
pub(crate) trait Store: Send + Sync + 'static {
    type Client: Client;

    /// What the name of each of its processes begins with.
    const PROGRAM: &'static str;

    /// A client with a connection of its own to a node.
    fn client(&self, node: usize, key: usize) -> Self::Client;

    /// The node that leads.
    async fn leader(&self) -> usize;
    async fn kill(&self, node: usize);
    /// Starts a killed node, and waits until it is there.
    async fn revive(&self, node: usize);
    /// The folder that has a folder for each node, and little else.
    fn folder(&self) -> &Path;

    /// The size of the files of one node, in MB.
    fn disk_mb(&self) -> u64 {
        size(self.folder()) / 3 / 1_000_000
    }
}

/// A client of one value.
pub(crate) trait Client: Send + 'static {
    /// Creates the value, or finds out what it is.
    fn prepare(&mut self) -> impl Future<Output = Result<(), String>> + Send;
    fn work(&mut self, work: Work) -> impl Future<Output = Result<(), String>> + Send;
    /// Goes on with another value, over the same connection.
    fn turn_to(&mut self, key: usize);
}

/// What the processes of a store have used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// The memory of the largest one, in KiB.
    pub(crate) resident: u64,
}

/// What the child processes have used whose names begin with `program`.
pub(crate) fn usage(program: &str) -> Usage {
    // Of the kernel, as programs see it, on every machine that Linux runs on.
    const TICK: Duration = Duration::from_millis(10);
    let mut usage = Usage::default();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let (Some((_, rest)), Some((_, fields))) = (stat.split_once('('), stat.rsplit_once(')'))
        else {
            continue;
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        if !rest.starts_with(program) || number(1) != u64::from(std::process::id()) {
            continue;
        }
        usage.cpu += TICK * u32::try_from(number(11) + number(12)).unwrap();
        // In pages.
        usage.resident = usage.resident.max(number(21) * 4);
    }
    usage
}

/// Stores so many values, and gives the memory of the largest node, in KiB.
pub(crate) async fn fill<S: Store>(store: &Arc<S>, count: usize) -> u64 {
    const CLIENTS: usize = 64;
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = store.client(number % 3, 0);
        tasks.spawn(async move {
            for key in (number..count).step_by(CLIENTS) {
                client.turn_to(10_000 + key);
                client.prepare().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    usage(S::PROGRAM).resident
}

/// Writes so often to the values of a few clients, and gives the seconds that it took.
pub(crate) async fn overwrite<S: Store>(store: &Arc<S>, count: usize) -> u64 {
    const CLIENTS: usize = 256;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = store.client(number % 3, number);
        tasks.spawn(async move {
            client.prepare().await.unwrap();
            for _ in (number..count).step_by(CLIENTS) {
                client.work(Work::Write).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    began.elapsed().as_secs()
}

/// The bytes that the files below a folder take on the disk.
fn size(folder: &Path) -> u64 {
    // Files may go meanwhile, because logs are cut off.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// How long a follower takes that is killed and started again, until it answers
/// a linearizable read, in milliseconds.
pub(crate) async fn restart<S: Store>(store: &S) -> u128 {
    let node = (store.leader().await + 1) % 3;
    store.kill(node).await;
    let began = Instant::now();
    store.revive(node).await;
    let mut client = store.client(node, 0);
    while client.prepare().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed().as_millis()
}

/// What one measurement gave; times are in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Of all nodes for one call, in microseconds.
    pub(crate) cpu: f64,
}

impl Sample {
    /// The median of each figure.
    pub(crate) fn median(samples: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            let mut all: Vec<f64> = samples.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Self {
            per_second: middle(|s| s.per_second),
            p50: middle(|s| s.p50),
            p99: middle(|s| s.p99),
            cpu: middle(|s| s.cpu),
        }
    }
}

pub(crate) fn median(mut all: Vec<u128>) -> u128 {
    all.sort_unstable();
    all[all.len() / 2]
}

/// Has clients work for a time, each as fast as it can.
pub(crate) async fn load<S: Store>(
    store: &Arc<S>,
    clients: usize,
    work: Work,
    time: Duration,
) -> Sample {
    let mut ready = Vec::new();
    for number in 0..clients {
        let mut client = store.client(number % 3, number);
        client.prepare().await.unwrap();
        ready.push(client);
    }
    let mut tasks = JoinSet::new();
    let before = usage(S::PROGRAM).cpu;
    let began = Instant::now();
    for mut client in ready {
        tasks.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time {
                let start = Instant::now();
                client.work(work).await.unwrap();
                times.push(start.elapsed());
            }
            times
        });
    }
    let mut times: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    let took = began.elapsed();
    let used = usage(S::PROGRAM).cpu.saturating_sub(before);
    times.sort_unstable();
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_secs_f64() * 1e3;
    let count = u32::try_from(times.len()).unwrap();
    Sample {
        per_second: f64::from(count) / took.as_secs_f64(),
        p50: at(50),
        p99: at(99),
        cpu: used.as_secs_f64() * 1e6 / f64::from(count),
    }
}

/// The time from the death of the leader to the next write that is
/// acknowledged, in milliseconds. Both other nodes are asked all the time.
pub(crate) async fn failover<S: Store>(store: &S) -> u128 {
    let leader = store.leader().await;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    let mut clients = Vec::new();
    for node in &others {
        let mut client = store.client(*node, 1000 + node);
        client.prepare().await.unwrap();
        client.work(Work::Write).await.unwrap();
        clients.push(client);
    }
    store.kill(leader).await;
    let killed = Instant::now();
    let mut tasks = JoinSet::new();
    for mut client in clients {
        tasks.spawn(async move {
            loop {
                // What was written without an answer is found out.
                let written = async {
                    client.prepare().await?;
                    client.work(Work::Write).await
                };
                match tokio::time::timeout(Duration::from_millis(250), written).await {
                    Ok(Ok(())) => return,
                    Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
    }
    tasks.join_next().await.unwrap().unwrap();
    let took = killed.elapsed().as_millis();
    tasks.shutdown().await;
    store.revive(leader).await;
    took
}
