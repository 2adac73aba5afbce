//! Controllers under random writes, conflicts, failures, panics and changes of the lease.

use std::{
    collections::{BTreeMap, HashSet},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fastrand::Rng;
use futures::{StreamExt as _, stream};
use resource_store::{
    Code, LocalClient, Resource, ResourceClient, ResourceData as _, RpcError,
    backend::WatchEvent,
    controller::{
        BoxError, Controller, Leadership, Manager, Outcome, Reconciler, Request, Runtime,
    },
    demo::v2::Artist,
    pb::{self, DeleteRequest, Id, ListRequest, WatchListRequest, WriteStatusRequest},
    remove_finalizer,
    service::EventStream,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::support::*;

const FINALIZER: &str = "soak";
const STATUS_KEY: &str = "soak";
const WORKERS: usize = 8;

/// What the controller made of the resources, in a world outside of the store.
#[derive(Debug, Default)]
struct World {
    /// By name: the generation that was brought about last.
    made: Mutex<BTreeMap<String, String>>,
    at_work: Mutex<HashSet<String>>,
    /// Most reconciles at the same time.
    most: Mutex<usize>,
    overlaps: AtomicU64,
    reconciled: AtomicU64,
    changed: Notify,
}

/// One reconcile at work, however it ends.
struct AtWork<'a>(&'a World, String);

impl<'a> AtWork<'a> {
    fn begin(world: &'a World, name: &str) -> Self {
        let mut at_work = world.at_work.lock().unwrap();
        if !at_work.insert(name.to_owned()) {
            world.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let mut most = world.most.lock().unwrap();
        *most = at_work.len().max(*most);
        Self(world, name.to_owned())
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.lock().unwrap().remove(&self.1);
    }
}

/// Makes the world what the resources say, and fails in every way now and then.
#[derive(Debug)]
struct Maker {
    world: Arc<World>,
    random: Mutex<Rng>,
}

impl Maker {
    fn draw(&self, below: u32) -> u32 {
        self.random.lock().unwrap().u32(0..below)
    }

    async fn make(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let name = &request.id.name;
        let found = match runtime.client.read(request.id.clone()).await {
            // The finalizer saw to it that nothing is left of it.
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            found => found?,
        };
        for _ in 0..self.draw(4) {
            tokio::task::yield_now().await;
        }
        match self.draw(40) {
            // Without the hook, which would print thousands of them.
            0 => std::panic::resume_unwind(Box::new("planned")),
            1 => return Err("planned".into()),
            2 => return Ok(Outcome::RequeueAfter(Duration::from_millis(1))),
            _ => {}
        }
        if found.is_marked_for_deletion() {
            self.world.made.lock().unwrap().remove(name);
            remove_finalizer(&*runtime.client, request.id.clone(), FINALIZER).await?;
            return Ok(Outcome::Done);
        }
        self.world.made.lock().unwrap().insert(name.clone(), found.generation.clone());
        if found.status.get(STATUS_KEY).is_none_or(|s| s.observed_generation != found.generation) {
            let status =
                pb::Status { observed_generation: found.generation, ..pb::Status::default() };
            let request = WriteStatusRequest {
                id: found.id,
                version: found.version,
                key: STATUS_KEY.to_owned(),
                status: Some(status),
            };
            runtime.client.write_status(request).await?;
        }
        Ok(Outcome::Done)
    }
}

#[async_trait]
impl Reconciler for Maker {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let at_work = AtWork::begin(&self.world, &request.id.name);
        let result = self.make(runtime, request).await;
        drop(at_work);
        self.world.reconciled.fetch_add(1, Ordering::SeqCst);
        self.world.changed.notify_one();
        result
    }
}

/// A client whose watches lose the event with this number, counted after the snapshots, and all
/// that follow about its resource.
#[derive(Debug)]
struct Losing {
    inner: LocalClient,
    after: u64,
    seen: Arc<AtomicU64>,
}

#[async_trait]
impl ResourceClient for Losing {
    async fn read(&self, id: Id) -> Result<pb::Resource, RpcError> {
        self.inner.read(id).await
    }
    async fn read_strong(&self, id: Id) -> Result<pb::Resource, RpcError> {
        self.inner.read_strong(id).await
    }
    async fn write(&self, resource: pb::Resource) -> Result<pb::Resource, RpcError> {
        self.inner.write(resource).await
    }
    async fn write_status(&self, request: WriteStatusRequest) -> Result<pb::Resource, RpcError> {
        self.inner.write_status(request).await
    }
    async fn list(&self, request: ListRequest) -> Result<Vec<pb::Resource>, RpcError> {
        self.inner.list(request).await
    }
    async fn list_by_owner(&self, owner: Id) -> Result<Vec<pb::Resource>, RpcError> {
        self.inner.list_by_owner(owner).await
    }
    async fn delete(&self, request: DeleteRequest) -> Result<(), RpcError> {
        self.inner.delete(request).await
    }
    async fn watch_list(&self, request: WatchListRequest) -> Result<EventStream, RpcError> {
        let events = self.inner.watch_list(request).await?;
        let (after, seen) = (self.after, Arc::clone(&self.seen));
        let state = (events, false, None::<String>);
        let lossy = stream::unfold(state, move |(mut events, mut following, mut lost)| {
            let seen = Arc::clone(&seen);
            async move {
                loop {
                    let event = events.next().await?;
                    if let Ok(WatchEvent::EndOfSnapshot) = event {
                        following = true;
                    } else if let (true, Ok(WatchEvent::Upsert(of) | WatchEvent::Delete(of))) =
                        (following, &event)
                    {
                        let name = of.name().to_owned();
                        if seen.fetch_add(1, Ordering::SeqCst) == after {
                            lost = Some(name.clone());
                        }
                        if lost.as_ref() == Some(&name) {
                            continue;
                        }
                    }
                    return Some((event, (events, following, lost)));
                }
            }
        });
        Ok(lossy.boxed())
    }
    async fn mutate_and_validate(&self, resource: pb::Resource) -> Result<pb::Resource, RpcError> {
        self.inner.mutate_and_validate(resource).await
    }
}

struct Run {
    client: LocalClient,
    world: Arc<World>,
    resources: usize,
    time: Duration,
    seed: u64,
    /// Whether the lease comes and goes.
    leases: bool,
}

fn artist(number: usize, data: u64) -> pb::Resource {
    let data = Artist { name: format!("artist {data}"), ..Artist::default() };
    let tenancy = pb::Tenancy::new("default", "default");
    let mut artist = Resource::new(tenancy, &format!("artist-{number}"), data).encode();
    // Without it a deletion while the lease is lost would be seen by nobody.
    artist.add_finalizer(FINALIZER);
    artist
}

/// Writes, writes again with an old version, deletes.
async fn change(client: &LocalClient, resources: usize, random: &mut Rng) {
    let (number, data) = (random.usize(0..resources), random.u64(..));
    let resource = artist(number, data);
    let id = resource.id.clone().unwrap();
    let done = match random.u32(0..10) {
        0 => client.delete(DeleteRequest { id: Some(id), version: String::new() }).await.map(drop),
        1..4 => match client.read(id).await {
            Ok(old) => {
                // Without a status the stored one stays; the one that was read may be outdated.
                let status = BTreeMap::new();
                let conditional = pb::Resource { data: resource.data.clone(), status, ..old };
                let first = client.write(conditional.clone()).await;
                let second = client.write(conditional).await;
                assert!(first.is_err() || second.is_err(), "both writes of one version succeeded");
                first.map(drop)
            }
            Err(error) => Err(error),
        },
        _ => client.write(resource).await.map(drop),
    };
    if let Err(error) = done {
        // What is marked for deletion takes no other data, and what was marked when it was read
        // and is gone by now cannot be created so.
        let expected = [Code::NotFound, Code::Aborted, Code::InvalidArgument];
        assert!(expected.contains(&error.code()), "{error}");
    }
}

impl Run {
    async fn drive(&self, lease: &Leadership) {
        let end = Instant::now() + self.time;
        let writers = (0..2).map(|writer| async move {
            let mut random = Rng::with_seed(self.seed + writer);
            while Instant::now() < end {
                for _ in 0..random.usize(1..50) {
                    change(&self.client, self.resources, &mut random).await;
                }
                tokio::time::sleep(Duration::from_micros(random.u64(0..3000))).await;
            }
        });
        let leader = async {
            let mut random = Rng::with_seed(self.seed + 7);
            while self.leases && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(random.u64(50..800))).await;
                lease.set(false);
                tokio::time::sleep(Duration::from_millis(random.u64(0..50))).await;
                lease.set(true);
            }
        };
        futures::future::join(futures::future::join_all(writers), leader).await;
        lease.set(true);
    }

    /// By name: what the world has and what the store has, where they differ.
    async fn differences(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let request = ListRequest {
            r#type: Some(Artist::resource_type()),
            tenancy: Some(pb::Tenancy::new("default", "default")),
            name_prefix: String::new(),
        };
        let stored = self.client.list(request).await.unwrap().into_iter();
        let stored: BTreeMap<_, _> =
            stored.map(|found| (found.name().to_owned(), found.generation)).collect();
        let made = self.world.made.lock().unwrap().clone();
        let names: std::collections::BTreeSet<_> = stored.keys().chain(made.keys()).collect();
        let differ = names.into_iter().filter(|name| made.get(*name) != stored.get(*name));
        differ
            .map(|name| (name.clone(), made.get(name).cloned(), stored.get(name).cloned()))
            .collect()
    }

    /// Waits until the world is what the store says, or nothing has moved for `quiet`.
    async fn settled(&self, quiet: Duration) -> Result<(), String> {
        loop {
            let differ = self.differences().await;
            if differ.is_empty() {
                return Ok(());
            }
            if tokio::time::timeout(quiet, self.world.changed.notified()).await.is_err() {
                // It may have become right with the last one.
                let differ = self.differences().await;
                return if differ.is_empty() { Ok(()) } else { Err(format!("{differ:?}")) };
            }
        }
    }
}

fn controller(world: &Arc<World>, seed: u64) -> Controller {
    let maker = Maker { world: Arc::clone(world), random: Mutex::new(Rng::with_seed(seed)) };
    Controller::new("soak", Artist::resource_type())
        .with_reconciler(maker)
        .with_concurrency(NonZeroUsize::new(WORKERS).unwrap())
        .with_backoff(Duration::from_millis(1), Duration::from_millis(50))
}

/// Runs a controller with this client; gives what differs in the end.
async fn soak(run: &Run, client: impl ResourceClient, quiet: Duration) -> Result<(), String> {
    let lease = Leadership::default();
    lease.set(true);
    let mut manager = Manager::new(client).with_lease(lease.clone());
    manager.register(controller(&run.world, run.seed)).unwrap();
    for number in 0..run.resources {
        run.client.write(artist(number, 0)).await.unwrap();
    }
    let stop = CancellationToken::new();
    let managed = tokio::spawn(manager.run(stop.clone()));
    run.drive(&lease).await;
    let settled = run.settled(quiet).await;
    stop.cancel();
    managed.await.unwrap().unwrap();
    settled
}

fn new_run(resources: usize, time: Duration, seed: u64, leases: bool) -> Run {
    let client = LocalClient::new(service());
    Run { client, world: Arc::default(), resources, time, seed, leases }
}

/// Ten minutes with 10,000 resources when `SOAK=1`; `SEED` replaces the seed.
#[expect(clippy::print_stdout, reason = "whoever looks at a failure needs the seed")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_resource_is_reconciled_to_its_last_version() {
    let soak_it = std::env::var("SOAK").is_ok_and(|soak| soak == "1");
    let seed = std::env::var("SEED").map_or(28, |seed| seed.parse().unwrap());
    let (resources, seconds) = if soak_it { (10_000, 600) } else { (300, 2) };
    let run = new_run(resources, Duration::from_secs(seconds), seed, true);
    println!("{resources} resources, {seconds} s, seed {seed}");
    // A restart after a failure waits half a second and more.
    soak(&run, run.client.clone(), Duration::from_secs(30)).await.unwrap();
    let world = &run.world;
    let reconciled = world.reconciled.load(Ordering::SeqCst);
    println!("{reconciled} reconciles, at most {} at a time", world.most.lock().unwrap());
    assert_eq!(world.overlaps.load(Ordering::SeqCst), 0, "two reconciles of one resource");
    assert!(*world.most.lock().unwrap() > 1, "never more than one at a time");
    assert!(reconciled > resources as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_is_found() {
    let run = new_run(20, Duration::from_millis(300), 28, false);
    let losing = Losing { inner: run.client.clone(), after: 5, seen: Arc::default() };
    let found = soak(&run, losing, Duration::from_secs(2)).await;
    assert!(found.unwrap_err().contains("artist-"));
}
