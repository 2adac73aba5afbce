//! Controllers as a manager runs them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use resource_store::{
    LocalClient, ResourceClient, ResourceData, ResourceService,
    backend::{Backend as _, memory::MemoryBackend},
    controller::{
        BoxError, Controller, Event, Index, Initializer, Key, Leadership, Manager, Outcome,
        Placement, RateLimit, Reconciler, Request, Runtime, mapper,
    },
    demo::{
        self,
        v1::{Executive, RecordLabel},
        v2::{Album, Artist},
    },
    pb,
};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// What a reconciler was called with.
struct Call {
    request: Request,
    runtime: Runtime,
    at: Instant,
}

/// Answers to give, in order; `Done` after the last.
type Script = Mutex<VecDeque<fn() -> Result<Outcome, BoxError>>>;

/// Tells of each call, and answers by a script.
struct Recorder {
    calls: mpsc::UnboundedSender<Call>,
    script: Script,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

#[async_trait]
impl Reconciler for Recorder {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let call = Call { request: request.clone(), runtime: runtime.clone(), at: Instant::now() };
        // A test that ended listens no more.
        drop(self.calls.send(call));
        let answer = self.script.lock().unwrap().pop_front();
        answer.map_or(Ok(Outcome::Done), |answer| answer())
    }
}

fn recorder(
    script: Vec<fn() -> Result<Outcome, BoxError>>,
) -> (Recorder, mpsc::UnboundedReceiver<Call>) {
    let (calls, seen) = mpsc::unbounded_channel();
    (Recorder { calls, script: Mutex::new(script.into()) }, seen)
}

/// A manager at work, which stops when this is dropped.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn run(service: &ResourceService, controller: Controller) -> Running {
    run_with(Manager::new(LocalClient::new(service.clone())), controller)
}

fn run_with(mut manager: Manager, controller: Controller) -> Running {
    manager.register(controller).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { manager.run(stop).await.unwrap() }
    });
    Running { stop, task }
}

async fn next(calls: &mut mpsc::UnboundedReceiver<Call>) -> Call {
    tokio::time::timeout(Duration::from_mins(1), calls.recv()).await.unwrap().unwrap()
}

async fn none_within(calls: &mut mpsc::UnboundedReceiver<Call>, time: Duration) {
    let result = tokio::time::timeout(time, calls.recv()).await;
    assert!(result.is_err(), "a call too many: {}", result.unwrap().unwrap().request.id);
}

fn artists(recorder: Recorder) -> Controller {
    let names = Index::new("name", |resource| Ok(vec![Key::new().text(resource.name())]));
    Controller::new("artists", Artist::resource_type())
        .with_index(names)
        .with_query(
            "named",
            Arc::new(|cache, key| Ok(cache.list(&Artist::resource_type(), "name", key)?)),
        )
        .with_watch(Album::resource_type(), mapper::owner(), vec![Index::owner("owner")])
        .with_reconciler(recorder)
}

const SECOND: Duration = Duration::from_secs(1);

/// Spec: RS69
#[tokio::test(start_paused = true)]
async fn written_resources_are_reconciled_with_a_full_cache() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let _running = run(&service, artists(recorder));
    let stored = service.put(artist("korn")).await.unwrap();
    let call = next(&mut calls).await;
    assert_eq!(call.request.id, id(&stored));
    let (ty, key) = (Artist::resource_type(), Key::new().text("korn"));
    let cached = call.runtime.cache.get(&ty, "name", &key).unwrap();
    assert_eq!(cached, Some(pb::Resource::clone(&stored)));
    assert_eq!(call.runtime.cache.query("named", &key).unwrap(), [pb::Resource::clone(&stored)]);
}

/// Spec: RS70
#[tokio::test(start_paused = true)]
async fn owned_resources_map_to_their_owner() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let _running = run(&service, artists(recorder));
    let stored = service.put(artist("korn")).await.unwrap();
    next(&mut calls).await;
    for (name, count) in [("issues", 1), ("untouchables", 2)] {
        service.put(demo::album(name, &id(&stored)).encode()).await.unwrap();
        let call = next(&mut calls).await;
        assert_eq!(call.request.id, id(&stored));
        let owned =
            call.runtime.cache.list(&Album::resource_type(), "owner", &Key::of(&id(&stored)));
        assert_eq!(owned.unwrap().len(), count);
    }
}

/// Spec: RS71
#[tokio::test(start_paused = true)]
async fn events_from_elsewhere_map_to_requests() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let (sender, _) = tokio::sync::broadcast::channel::<String>(16);
    let source = sender.clone();
    let controller = artists(recorder).with_custom_watch(
        Arc::new(move || {
            let events = tokio_stream::wrappers::BroadcastStream::new(source.subscribe());
            let events = events.filter_map(|name| async move { name.ok() });
            events.map(|name| Event { key: name.clone(), object: Arc::new(name) }).boxed()
        }),
        Arc::new(|_, event| {
            let name = event.object.downcast_ref::<String>().cloned().unwrap_or_default();
            async move { Ok(vec![Request::new(demo::artist(&name).id)]) }.boxed()
        }),
    );
    let _running = run(&service, controller);
    while sender.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    sender.send("nobody".to_owned()).unwrap();
    assert_eq!(next(&mut calls).await.request.id, demo::artist("nobody").id);
}

/// Spec: RS72
#[tokio::test(start_paused = true)]
async fn errors_and_panics_have_the_request_repeated() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![|| Err("told to".into()), || panic!("told to")]);
    let _running = run(&service, artists(recorder));
    let stored = service.put(artist("korn")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(next(&mut calls).await.request.id, id(&stored));
    }
    none_within(&mut calls, SECOND).await;
}

/// Spec: RS73
#[tokio::test(start_paused = true)]
async fn a_request_may_ask_to_be_repeated_later() {
    let service = service();
    let (recorder, mut calls) =
        recorder(vec![|| Ok(Outcome::RequeueAfter(Duration::from_secs(1)))]);
    let _running = run(&service, artists(recorder));
    service.put(artist("korn")).await.unwrap();
    next(&mut calls).await;
    none_within(&mut calls, Duration::from_millis(750)).await;
    next(&mut calls).await;
    none_within(&mut calls, SECOND * 10).await;
}

#[derive(Debug, Default, Clone)]
struct FailsOnce(Arc<AtomicU32>);

#[async_trait]
impl Initializer for FailsOnce {
    async fn initialize(&self, _: &dyn ResourceClient) -> Result<(), BoxError> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 { Err("told to".into()) } else { Ok(()) }
    }
}

/// Spec: RS74
#[tokio::test(start_paused = true)]
async fn an_initializer_is_repeated_until_it_works() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let initializer = FailsOnce::default();
    let controller = artists(recorder).with_initializer(initializer.clone());
    let _running = run(&service, controller);
    service.put(artist("korn")).await.unwrap();
    next(&mut calls).await;
    assert_eq!(initializer.0.load(Ordering::SeqCst), 2);
}

fn assert_forced(first: &Call, second: &Call) {
    let between = second.at - first.at;
    assert!((SECOND * 4..=SECOND * 5).contains(&between), "{between:?}");
}

/// Spec: RS75, RS77
#[tokio::test(start_paused = true)]
async fn reconciles_are_forced_until_the_resource_is_gone() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let controller = artists(recorder).with_force_reconcile_every(SECOND * 5);
    let _running = run(&service, controller);
    let stored = service.put(artist("korn")).await.unwrap();
    let first = next(&mut calls).await;
    let second = next(&mut calls).await;
    assert_forced(&first, &second);

    service.remove(&id(&stored), "").await.unwrap();
    let delete = next(&mut calls).await;
    assert!(delete.at - second.at < SECOND);
    let pending = next(&mut calls).await;
    assert_forced(&second, &pending);
    none_within(&mut calls, SECOND * 20).await;
}

/// Spec: RS76
#[tokio::test(start_paused = true)]
async fn a_forced_reconcile_counts_from_the_success() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![|| Err("told to".into())]);
    let controller = artists(recorder).with_force_reconcile_every(SECOND * 5);
    let _running = run(&service, controller);
    service.put(artist("korn")).await.unwrap();
    let failed = next(&mut calls).await;
    let repeated = next(&mut calls).await;
    assert!(repeated.at - failed.at < SECOND / 10, "rate limited, but soon");
    let forced = next(&mut calls).await;
    assert_forced(&repeated, &forced);
}

/// Spec: RS78
#[tokio::test(start_paused = true)]
async fn singletons_follow_the_lease_and_others_do_not() {
    for (placement, with_lease_only) in
        [(Placement::Singleton, true), (Placement::EachServer, false)]
    {
        let service = service();
        let leadership = Leadership::default();
        let (recorder, mut calls) = recorder(vec![]);
        let stopped = Arc::new(AtomicU32::new(0));
        let stops = Arc::clone(&stopped);
        let controller = artists(recorder).with_placement(placement).with_notify_stop(move |_| {
            stops.fetch_add(1, Ordering::SeqCst);
        });
        let manager =
            Manager::new(LocalClient::new(service.clone())).with_lease(leadership.clone());
        let mut running = run_with(manager, controller);
        service.put(artist("korn")).await.unwrap();
        if with_lease_only {
            none_within(&mut calls, SECOND * 10).await;
            leadership.set(true);
            next(&mut calls).await;
            leadership.set(false);
            tokio::time::sleep(SECOND).await;
            assert_eq!(stopped.load(Ordering::SeqCst), 1);
            service.put(artist("muse")).await.unwrap();
            none_within(&mut calls, SECOND * 10).await;
        } else {
            next(&mut calls).await;
        }
        running.stop.cancel();
        (&mut running.task).await.unwrap();
        assert_eq!(stopped.load(Ordering::SeqCst), 1, "told of its stop once");
    }
}

async fn sees<T: ResourceData>(resource: pb::Resource) {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let controller = Controller::new("scoped", T::resource_type()).with_reconciler(recorder);
    let _running = run(&service, controller);
    let stored = service.put(resource).await.unwrap();
    assert_eq!(next(&mut calls).await.request.id, id(&stored));
}

/// Spec: RS79
#[tokio::test(start_paused = true)]
async fn types_of_every_scope_have_controllers() {
    sees::<Executive>(executive("ceo")).await;
    sees::<RecordLabel>(label("roadrunner")).await;
    sees::<Artist>(artist("korn")).await;
}

/// Spec: RS82
#[tokio::test(start_paused = true)]
async fn copies_are_the_users_and_the_cache_shares_with_the_store() {
    let service = service();
    let (recorder, mut calls) = recorder(vec![]);
    let _running = run(&service, artists(recorder));
    let stored = service.put(artist("korn")).await.unwrap();
    let Call { runtime, .. } = next(&mut calls).await;
    let (ty, key) = (Artist::resource_type(), Key::of(&id(&stored)));
    let shared = runtime.cache.get_shared(&ty, "id", &key).unwrap().unwrap();
    assert!(Arc::ptr_eq(&shared, &stored), "one object for store and cache");
    let mut from_cache = runtime.cache.get(&ty, "id", &key).unwrap().unwrap();
    let mut from_client = runtime.client.read(id(&stored)).await.unwrap();
    assert_eq!((&from_cache, &from_client), (&*stored, &*stored));
    from_cache.metadata.clear();
    from_client.data = None;
    assert_eq!(runtime.cache.get_shared(&ty, "id", &key).unwrap(), Some(stored));
}

/// A controller whose watches end with the store's restore starts again, with a
/// cache of what is there then.
#[tokio::test(start_paused = true)]
async fn a_restored_store_has_controllers_start_again() {
    let backend = MemoryBackend::new();
    let service = builder_over(Arc::new(backend.clone())).build();
    let kept = service.put(artist("kept")).await.unwrap();
    let snapshot = backend.snapshot().await.unwrap();
    service.put(artist("lost")).await.unwrap();
    let (recorder, mut calls) = recorder(vec![]);
    let _running = run(&service, artists(recorder));
    next(&mut calls).await;
    next(&mut calls).await;
    backend.restore(snapshot).await.unwrap();
    let call = next(&mut calls).await;
    assert_eq!(call.request.id, id(&kept));
    let all = call.runtime.cache.list(&Artist::resource_type(), "id", &Key::new()).unwrap();
    assert_eq!(all, [pb::Resource::clone(&kept)]);
}

/// Where a controller of the test below panics, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Index,
    Initializer,
    Start,
    Stop,
    EventSource,
    EventStream,
}

#[derive(Debug)]
struct Once {
    place: Panics,
    armed: Arc<AtomicU32>,
}

impl Once {
    fn at(&self, place: Panics) {
        let due = self.place == place && self.armed.swap(0, Ordering::SeqCst) == 1;
        assert!(!due, "told to panic in {place:?}");
    }
}

#[derive(Debug)]
struct PanickingInitializer(Arc<Once>);

#[async_trait]
impl Initializer for PanickingInitializer {
    async fn initialize(&self, _: &dyn ResourceClient) -> Result<(), BoxError> {
        self.0.at(Panics::Initializer);
        Ok(())
    }
}

fn panicking(recorder: Recorder, once: &Arc<Once>) -> Controller {
    let (index, start, stop, source) = (once.clone(), once.clone(), once.clone(), once.clone());
    let names = Index::new("name", move |resource| {
        index.at(Panics::Index);
        Ok(vec![Key::new().text(resource.name())])
    });
    Controller::new("artists", Artist::resource_type())
        .with_index(names)
        .with_initializer(PanickingInitializer(Arc::clone(once)))
        .with_notify_start(move |_| start.at(Panics::Start))
        .with_notify_stop(move |_| stop.at(Panics::Stop))
        .with_custom_watch(
            Arc::new(move || {
                source.at(Panics::EventSource);
                let source = Arc::clone(&source);
                futures::stream::poll_fn(move |_| {
                    source.at(Panics::EventStream);
                    std::task::Poll::Pending
                })
                .boxed()
            }),
            Arc::new(|_, _| async { Ok(Vec::new()) }.boxed()),
        )
        .with_reconciler(recorder)
}

/// A panic of what users bring in, wherever, ends one run and not the manager:
/// it is reported, and the controller starts again.
#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_is_contained() {
    for place in [
        Panics::Index,
        Panics::Initializer,
        Panics::Start,
        Panics::Stop,
        Panics::EventSource,
        Panics::EventStream,
    ] {
        let service = service();
        let stored = service.put(artist("korn")).await.unwrap();
        let armed = Arc::new(AtomicU32::new(1));
        let once = Arc::new(Once { place, armed: Arc::clone(&armed) });
        let (recorder, mut calls) = recorder(Vec::new());
        let lease = Leadership::default();
        lease.set(true);
        let manager = Manager::new(LocalClient::new(service.clone())).with_lease(lease.clone());
        let running = run_with(manager, panicking(recorder, &once));
        if place == Panics::Stop {
            next(&mut calls).await;
            lease.set(false);
            while armed.load(Ordering::SeqCst) == 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            lease.set(true);
        }
        let call = next(&mut calls).await;
        assert_eq!(call.request.id, id(&stored), "{place:?}");
        assert_eq!(armed.load(Ordering::SeqCst), 0, "{place:?}: it did not panic");
        assert!(!running.task.is_finished(), "{place:?}");
    }
}

#[tokio::test]
async fn one_name_twice_and_types_that_the_service_lacks_are_refused() {
    let mut manager = Manager::new(LocalClient::new(service()));
    manager.register(artists(recorder(Vec::new()).0)).unwrap();
    let twice = manager.register(artists(recorder(Vec::new()).0)).unwrap_err();
    assert_eq!(twice.to_string(), "controller \"artists\" is already registered");
    let unknown = pb::Type::new("net", "v1", "Port");
    let error = manager.register(
        Controller::new("ports", Artist::resource_type())
            .with_watch(unknown, mapper::owner(), Vec::new())
            .with_reconciler(recorder(Vec::new()).0),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "controller \"ports\" watches resource type net.v1.Port, which is not registered with the service"
    );
}

/// A controller reconciles so many at once and then one in each interval, however many
/// workers it has, and also after it was started again.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_spreads_reconciles() {
    let number = |number| std::num::NonZeroU32::new(number).unwrap();
    for workers in [1, 3] {
        let service = service();
        for name in ["a", "b", "c", "d", "e"] {
            service.put(artist(name)).await.unwrap();
        }
        let (recorder, mut calls) = recorder(Vec::new());
        let limit = RateLimit::per_second(number(2)).with_burst(number(2));
        let controller = Controller::of::<Artist>("slow")
            .with_concurrency(workers.try_into().unwrap())
            .with_rate_limit(limit)
            .with_reconciler(recorder);
        let running = run(&service, controller.clone());
        let first = next(&mut calls).await.at;
        let mut after = Vec::new();
        for _ in 0..4 {
            after.push((next(&mut calls).await.at - first).as_millis());
        }
        assert_eq!(after, [0, 500, 1000, 1500], "{workers} workers");

        // The bucket is not full again because the controller is.
        running.stop.cancel();
        let _again = run(&service, controller);
        let mut after = Vec::new();
        for _ in 0..3 {
            after.push((next(&mut calls).await.at - first).as_millis());
        }
        assert_eq!(after, [2000, 2500, 3000], "{workers} workers, started again");
    }
}
