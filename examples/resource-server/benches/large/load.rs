//! Clients that write all the time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use resource_store::{Code, GrpcClient, ResourceClient as _, backend::Consistency};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
    time::Instant,
};

use crate::{node::Node, store::concept};

const VALUE: usize = 1000;

/// Clients that each replace one value, until they are told to stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// How long writes took.
    written: UnboundedReceiver<Duration>,
    tasks: JoinSet<()>,
    since: Instant,
}

impl Load {
    pub(crate) fn start(nodes: &[&Node], writers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, written) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for number in 0..writers {
            let client = nodes[number % nodes.len()].client(Consistency::Strong);
            tasks.spawn(write(client, number, Arc::clone(&stop), tell.clone()));
        }
        Self { stop, written, tasks, since: Instant::now() }
    }

    /// What was written since this was asked last.
    pub(crate) fn lately(&mut self) -> String {
        let mut times = Vec::new();
        while let Ok(time) = self.written.try_recv() {
            times.push(time);
        }
        let took = self.since.elapsed();
        self.since = Instant::now();
        times.sort_unstable();
        if times.is_empty() {
            return "nothing was written".to_owned();
        }
        let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_millis();
        let rate = f64::from(u32::try_from(times.len()).unwrap()) / took.as_secs_f64();
        format!(
            "{rate:.0} writes/s; {} / {} / {} ms in the middle, at the 99th percentile, at most",
            at(50),
            at(99),
            at(100)
        )
    }

    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

async fn write(
    client: GrpcClient,
    number: usize,
    stop: Arc<AtomicBool>,
    tell: UnboundedSender<Duration>,
) {
    let fresh = concept(&format!("written-{number}"), VALUE);
    let id = fresh.id.clone().unwrap();
    let mut stored = fresh.clone();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match client.write(stored.clone()).await {
            Ok(written) => {
                stored = written;
                tell.send(began.elapsed()).unwrap();
            }
            Err(_) => match client.read(id.clone()).await {
                Ok(found) => stored = found,
                Err(error) if error.code() == Code::NotFound => stored = fresh.clone(),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
        }
    }
}
