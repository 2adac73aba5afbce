//! Loading a store, whichever it is, and measuring that.

use std::{sync::Arc, time::Duration};

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

    /// A client with a connection of its own to a node.
    fn client(&self, node: usize, key: usize) -> Self::Client;

    /// The node that leads.
    async fn leader(&self) -> usize;
    async fn kill(&self, node: usize);
    /// Starts a killed node, and waits until it is there.
    async fn revive(&self, node: usize);
}

/// A client of one value.
pub(crate) trait Client: Send + 'static {
    /// Creates the value, or finds out what it is.
    fn prepare(&mut self) -> impl Future<Output = Result<(), String>> + Send;
    fn work(&mut self, work: Work) -> impl Future<Output = Result<(), String>> + Send;
}

/// What one measurement gave; times are in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
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
    times.sort_unstable();
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_secs_f64() * 1e3;
    let count = u32::try_from(times.len()).unwrap();
    Sample { per_second: f64::from(count) / took.as_secs_f64(), p50: at(50), p99: at(99) }
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
