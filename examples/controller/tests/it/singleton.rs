//! Singleton controllers whose lease is an election in Consul.

#[path = "../../src/bin/singleton-controller/keeper.rs"]
mod keeper;
#[path = "../../src/bin/singleton-controller/lease.rs"]
mod lease;
mod processes;

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    testing::{TestClock, TestConsul, parts::Suite},
};
use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions};
use futures::StreamExt as _;
use keeper::Keeper;
use resource_store::{
    LocalClient, Registry, ResourceClient, ResourceData as _, ResourceService,
    backend::{WatchEvent, memory::MemoryBackend},
    controller::{Controller, Leadership, Manager},
    demo::{self, v2::Artist},
    pb::WatchListRequest,
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{PATIENCE, real_consul};

const SUITE: Suite = Suite("singleton");
const KEY: &str = "singleton/leader";

/// What happened, in order: `one runs`, `one stops`, …
type Log = watch::Sender<Vec<String>>;

/// Where managers meet: a store, a Consul, and a log.
struct World {
    service: ResourceService,
    consul: Client,
    options: ElectionOptions,
    log: Log,
}

/// A manager with a controller, as a process has it.
struct Member {
    name: &'static str,
    stop: CancellationToken,
    give_up: CancellationToken,
    running: JoinHandle<()>,
    holding: JoinHandle<cts_ha::Result<()>>,
    _stops: [DropGuard; 2],
}

impl World {
    fn new(consul: Client, options: ElectionOptions) -> Self {
        let mut registry = Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
        Self { service, consul, options, log: Log::default() }
    }

    fn client(&self) -> LocalClient {
        LocalClient::new(self.service.clone())
    }

    fn controller(&self, name: &'static str) -> Controller {
        let note = |what: &'static str| {
            let log = self.log.clone();
            move |_: &_| log.send_modify(|log| log.push(format!("{name} {what}")))
        };
        Controller::new("keeper", Artist::resource_type())
            .with_reconciler(Keeper::new(name))
            .with_notify_start(note("runs"))
            .with_notify_stop(note("stops"))
    }

    fn join(&self, name: &'static str) -> Member {
        let lease = Leadership::default();
        let mut manager = Manager::new(self.client()).with_lease(lease.clone());
        manager.register(self.controller(name)).unwrap();
        let consul = Consul::new(self.consul.clone());
        let elector =
            ConsulElector::new(&consul, KEY, Candidate::new(name), self.options.clone()).unwrap();
        let (stop, give_up) = (CancellationToken::new(), CancellationToken::new());
        let running = manager.run(stop.clone());
        Member {
            name,
            running: tokio::spawn(async move { running.await.unwrap() }),
            holding: tokio::spawn(lease::hold(elector, lease, give_up.clone())),
            _stops: [stop.clone().drop_guard(), give_up.clone().drop_guard()],
            stop,
            give_up,
        }
    }

    /// Waits until as much happened, and gives it.
    async fn happened(&self, count: usize) -> Vec<String> {
        let mut log = self.log.subscribe();
        let happened = timeout(PATIENCE, log.wait_for(|log| log.len() >= count)).await;
        let Ok(happened) = happened else { panic!("no more than {:?}", self.log.borrow()) };
        happened.unwrap().clone()
    }

    /// Waits until this many sessions stand.
    async fn candidates(&self, count: usize) {
        candidates(&self.consul, count).await;
    }

    /// Has Consul end the session that holds the lock.
    async fn depose(&self) {
        let lock = self.consul.kv_get(KEY, &QueryOptions::default()).await.unwrap();
        let session = lock.value.unwrap().session.unwrap();
        self.consul.session_destroy(&session, &WriteOptions::default()).await.unwrap();
    }
}

/// Waits until this many sessions stand in Consul.
async fn candidates(consul: &Client, count: usize) {
    let standing = timeout(PATIENCE, async {
        while consul.session_list(&QueryOptions::default()).await.unwrap().value.len() != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    standing.await.unwrap_or_else(|_late| panic!("there are not {count} sessions"));
}

/// Waits until every one of so many artists has this keeper.
async fn kept_by(client: &dyn ResourceClient, count: usize, name: &str) {
    let request =
        WatchListRequest { r#type: Some(Artist::resource_type()), ..WatchListRequest::default() };
    let kept = timeout(PATIENCE, async {
        let mut events = client.watch_list(request).await.unwrap();
        let mut kept = std::collections::BTreeSet::new();
        while kept.len() < count {
            let WatchEvent::Upsert(artist) = events.next().await.unwrap().unwrap() else {
                continue;
            };
            if artist.metadata.get("keeper").is_some_and(|keeper| keeper == name) {
                kept.insert(artist.name().to_owned());
            }
        }
    });
    assert!(kept.await.is_ok(), "not all {count} are kept by {name}");
}

impl Member {
    /// Stops as the example does: first the controllers, then the candidacy.
    async fn leave(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        self.give_up.cancel();
        self.holding.await.unwrap().unwrap();
    }
}

async fn one_runs_at_a_time(world: World) {
    let one = world.join("one");
    assert_eq!(world.happened(1).await, ["one runs"]);
    let two = world.join("two");
    world.candidates(2).await;
    let client = world.client();
    for i in 0..10 {
        client.write(demo::artist(&format!("artist-{i}")).encode()).await.unwrap();
    }
    kept_by(&client, 10, "one").await;
    assert_eq!(*world.log.borrow(), ["one runs"], "two only waits");

    // Leadership is lost; whoever leads next begins after the end of the first.
    world.depose().await;
    let log = world.happened(3).await;
    assert_eq!(log[1], "one stops");
    let (next, other) = if log[2] == "one runs" { (one, two) } else { (two, one) };
    assert_eq!(log[2], format!("{} runs", next.name));
    kept_by(&client, 10, next.name).await;

    // The holder leaves, and the other one begins once it has.
    world.candidates(2).await;
    let left = next.name;
    next.leave().await;
    let log = world.happened(5).await;
    assert_eq!(log[3..], [format!("{left} stops"), format!("{} runs", other.name)]);
    kept_by(&client, 10, other.name).await;
    other.leave().await;
    assert_eq!(world.happened(6).await.len(), 6);
    world.candidates(0).await;
}

/// What holds the lease ends in an unforeseen way: so does the lease, before
/// another is elected.
async fn a_lease_ends_with_what_holds_it(world: World) {
    let one = world.join("one");
    world.happened(1).await;
    let _two = world.join("two");
    world.candidates(2).await;
    one.holding.abort();
    assert_eq!(world.happened(3).await, ["one runs", "one stops", "two runs"]);
}

mod double {
    use super::*;

    fn world() -> World {
        SUITE.double("consul");
        let mut options = ElectionOptions::default();
        options.clock = Arc::new(TestClock::default());
        World::new(TestConsul::new().client(), options)
    }

    #[tokio::test(start_paused = true)]
    async fn one_runs_at_a_time() {
        super::one_runs_at_a_time(world()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_with_what_holds_it() {
        super::a_lease_ends_with_what_holds_it(world()).await;
    }
}

mod real {
    use super::*;

    fn options() -> ElectionOptions {
        let mut options = ElectionOptions::default();
        (options.session_ttl, options.lock_delay) =
            (Duration::from_secs(4), Duration::from_secs(2));
        options
    }

    #[tokio::test]
    async fn one_runs_at_a_time() {
        let Some(consul) = real_consul(SUITE, "one runs at a time").await else { return };
        super::one_runs_at_a_time(World::new(consul.client(), options())).await;
    }

    #[tokio::test]
    async fn a_lease_ends_with_what_holds_it() {
        let case = "a lease ends with what holds it";
        let Some(consul) = real_consul(SUITE, case).await else { return };
        super::a_lease_ends_with_what_holds_it(World::new(consul.client(), options())).await;
    }
}
