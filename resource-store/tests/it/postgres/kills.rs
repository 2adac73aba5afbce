//! A server that is killed again and again, under the load of several processes.
//!
//! Short by default; `SOAK=1` goes on for ten minutes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt as _;
use resource_store::{
    LocalClient, ResourceService,
    backend::{
        Backend, Consistency, Query, ResourceStream, Result, Watch, WatchEvent,
        postgres::PostgresBackend,
    },
    pb::{Id, Resource},
    testing::history::{Load, LoadNode, LoadOptions, LoadReport, Violation},
};
use tokio::time::{Instant, sleep};

use super::{server::Server, world::server};
use crate::support::demo_registry;

const SOAK: Duration = Duration::from_mins(10);
/// Number of processes that share the store.
const PROCESSES: usize = 3;
/// Kills in one history.
const KILLS: usize = 4;

fn node(backend: impl Backend) -> LoadNode {
    let service = ResourceService::builder(demo_registry(), Arc::new(backend)).build();
    let client = Arc::new(LocalClient::new(service));
    LoadNode { eventual: client.clone(), strong: client }
}

/// One history, in which `fault` happens.
async fn round(
    nodes: Vec<LoadNode>,
    seed: u64,
    fault: impl AsyncFnOnce(),
) -> Result<LoadReport, Violation> {
    let load = Load::start(nodes, LoadOptions::new(seed, &format!("round-{seed}-")));
    fault().await;
    let report = load.finish().await?;
    report.history.check().map(|()| report)
}

/// Ends the server in one of two ways, after some time of work, and starts it again.
async fn strike(server: &mut Server, random: &mut fastrand::Rng) {
    let last_change = "SELECT seq FROM resource_store.store";
    for _ in 0..KILLS {
        // However slow the machine is, there are changes between two kills.
        let enough = server.number(last_change).await + 20;
        while server.number(last_change).await < enough {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(random.u64(..300))).await;
        if random.bool() {
            server.kill();
        } else {
            server.stop("-QUIT").await;
        }
        server.launch();
        server.answers().await;
    }
    sleep(Duration::from_millis(200)).await;
}

/// Every change that was acknowledged is there, and watches see each once and in order.
#[expect(clippy::print_stdout, reason = "figures for who runs the long form")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_acknowledged_outlives_every_kill() {
    let Some(mut server) = server("what was acknowledged outlives every kill").await else {
        return;
    };
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let began = Instant::now();
    let (mut changed, mut unknown, mut events, mut rounds) = (0, 0, 0, 0_u64);
    loop {
        let mut backends = Vec::new();
        for _ in 0..PROCESSES {
            backends.push(server.backend().await);
        }
        let mut random = fastrand::Rng::with_seed(rounds);
        let nodes = backends.iter().cloned().map(node).collect();
        let checked = round(nodes, rounds, async || strike(&mut server, &mut random).await).await;
        let report = checked
            .unwrap_or_else(|violation| panic!("round {rounds}: {violation}\n{}", server.log()));
        changed += report.changed;
        unknown += report.unknown;
        events += report.events;
        rounds += 1;
        if !soak || began.elapsed() > SOAK {
            break;
        }
    }
    println!(
        "{rounds} rounds of {KILLS} kills: {changed} changes acknowledged, {unknown} unknown, \
         {events} events, 0 violations"
    );
    assert!(changed > 10 && events > 10, "too little was done: {changed} {events}");
}

/// A defect that a backend could have.
#[derive(Debug, Clone, Copy)]
enum Defect {
    /// Acknowledges a write that it does not make.
    ForgetsWrites,
    /// Does not tell watches of a change.
    LosesEvents,
    /// Tells watches of a change twice.
    RepeatsEvents,
}

/// A backend with a defect that shows once in a while.
#[derive(Debug)]
struct Defective {
    inner: PostgresBackend,
    defect: Defect,
    count: Arc<AtomicU64>,
}

/// Returns `true` once in a while.
fn strikes(count: &AtomicU64) -> bool {
    count.fetch_add(1, Ordering::Relaxed) % 40 == 39
}

#[async_trait]
impl Backend for Defective {
    async fn read(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        self.inner.read(consistency, id).await
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        let forgets = matches!(self.defect, Defect::ForgetsWrites) && strikes(&self.count);
        if forgets && !resource.version.is_empty() {
            return Ok(Arc::new(Resource { version: "forgotten".to_owned(), ..resource }));
        }
        self.inner.write_cas(resource).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        self.inner.delete_cas(id, version).await
    }

    async fn list(&self, consistency: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.inner.list(consistency, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        self.inner.list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let (defect, count) = (self.defect, Arc::clone(&self.count));
        let altered = self.inner.watch_list(query).await?.flat_map(move |event| {
            let struck = matches!(event, Ok(WatchEvent::Upsert(_)))
                && !matches!(defect, Defect::ForgetsWrites)
                && strikes(&count);
            let events = match (defect, event) {
                (Defect::LosesEvents, _) if struck => Vec::new(),
                (Defect::RepeatsEvents, Ok(event)) if struck => vec![Ok(event.clone()), Ok(event)],
                (_, event) => vec![event],
            };
            futures::stream::iter(events)
        });
        Ok(altered.boxed())
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        self.inner.snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        self.inner.restore(resources).await
    }
}

/// The checker finds what the test above is to find.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn planted_defects_are_found() {
    let Some(server) = server("planted defects are found").await else { return };
    for (seed, defect) in
        (0..).zip([Defect::ForgetsWrites, Defect::LosesEvents, Defect::RepeatsEvents])
    {
        let count = Arc::new(AtomicU64::new(0));
        let mut nodes = Vec::new();
        for _ in 0..PROCESSES {
            let inner = server.backend().await;
            nodes.push(node(Defective { inner, defect, count: Arc::clone(&count) }));
        }
        let until_struck = async || {
            while count.load(Ordering::Relaxed) < 400 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let checked = round(nodes, 1000 + seed, until_struck).await;
        assert!(checked.is_err(), "{defect:?} was not found");
    }
}
