//! One run of a controller, from its start to its first failure.
//!
//! What users bring in runs within [`contained`], so that its panic ends a run
//! like any other failure: reported, and started again after a delay.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    builder::{Controller, CustomWatch, DependencyWatch, Event, Notify},
    error::BoxError,
    measure,
    queue::{Priority, QueueItem, WorkQueue},
    reconciler::{Outcome, Request, Runtime},
};
use crate::{
    backend::WatchEvent,
    client::ResourceClient,
    code::{Code, RpcError},
    pb::{Resource, Tenancy, Type, WatchListRequest},
    service::EventStream,
    tenancy::WILDCARD,
};

/// A changed resource on its way to a mapper.
#[derive(Debug, Clone)]
struct Changed {
    /// The version that came first of those that wait. Upstream maps this one alone.
    first: Arc<Resource>,
    last: Arc<Resource>,
}

impl Changed {
    fn new(resource: Arc<Resource>) -> Self {
        Self { first: Arc::clone(&resource), last: resource }
    }

    /// The versions to be mapped: what the first one referred to has to know as well as what
    /// the last one refers to.
    fn versions(&self) -> impl Iterator<Item = &Resource> {
        let first = (!Arc::ptr_eq(&self.first, &self.last)).then_some(&*self.first);
        first.into_iter().chain([&*self.last])
    }
}

impl QueueItem for Changed {
    fn key(&self) -> String {
        let id = self.last.id.clone().unwrap_or_default();
        let ty = id.r#type.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("type={ty:?},{}", Request::new(id).key())
    }

    fn merge(&mut self, newer: Self) {
        self.last = newer.last;
    }
}

/// A watch whose snapshot is in the cache, and what the snapshot held.
struct Primed {
    events: EventStream,
    found: Vec<Arc<Resource>>,
}

/// Runs a controller until `cancel`, or the first failure.
///
/// Deviation: the watches that fill the cache go on as those that follow, so
/// that nothing is missed in between; upstream starts them twice.
pub(super) async fn run(
    controller: Arc<Controller>,
    client: Arc<dyn ResourceClient>,
    cancel: CancellationToken,
) -> Result<(), BoxError> {
    let started = contained(&controller, || async {
        match &controller.initializer {
            Some(initializer) => initializer.initialize(&*client).await,
            None => Ok(()),
        }
    });
    tokio::select! {
        result = started => result?,
        // An initializer may talk to the world, and a lease that is lost must not wait for it.
        () = cancel.cancelled() => return Ok(()),
    }
    let runtime = Runtime { client: Arc::clone(&client), cache: controller.new_cache()? };
    notify(&controller, controller.on_start.as_ref(), &runtime).await?;
    // Indexes and event sources are user code, too, and run where events come in.
    let result = tokio::select! {
        result = contained(&controller, || work(&controller, &runtime)) => result,
        () = cancel.cancelled() => Ok(()),
    };
    let stopped = notify(&controller, controller.on_stop.as_ref(), &runtime).await;
    result.and(stopped)
}

async fn notify(
    controller: &Controller,
    told: Option<&Notify>,
    runtime: &Runtime,
) -> Result<(), BoxError> {
    let Some(told) = told else { return Ok(()) };
    contained(controller, || async {
        told(runtime);
        Ok(())
    })
    .await
}

/// Fills the cache, then watches, maps and reconciles.
async fn work(controller: &Controller, runtime: &Runtime) -> Result<(), BoxError> {
    // All snapshots first: no mapper and no reconcile sees a cache that is filled in part.
    let types = std::iter::once(&controller.managed).chain(controller.watched_types());
    let primed =
        futures::future::try_join_all(types.map(|ty| prime(controller, runtime, ty))).await?;
    let mut primed = primed.into_iter();

    let (base, max) = controller.backoff;
    let requests = Arc::new(WorkQueue::new(base, max));
    let mut tasks: Vec<BoxFuture<'_, Result<(), BoxError>>> = Vec::new();
    if let Some(managed) = primed.next() {
        tasks.push(follow_managed(runtime, managed, &requests).boxed());
    }
    for (watch, primed) in controller.watches.iter().zip(primed) {
        // A queue for each watch: a mapper that fails holds up no other.
        let changes = Arc::new(WorkQueue::new(base, max));
        tasks.push(follow_dependency(runtime, primed, Arc::clone(&changes)).boxed());
        tasks.push(map_changes(controller, runtime, watch, changes, &requests).boxed());
    }
    for watch in &controller.custom_watches {
        let events = Arc::new(WorkQueue::new(base, max));
        tasks.push(follow_custom(watch, Arc::clone(&events)).boxed());
        tasks.push(map_events(controller, runtime, watch, events, &requests).boxed());
    }
    for _ in 0..controller.concurrency.get() {
        tasks.push(reconcile_all(controller, runtime, &requests).boxed());
    }
    futures::future::try_join_all(tasks).await?;
    Ok(())
}

/// Starts a watch and puts its snapshot into the cache.
async fn prime(controller: &Controller, runtime: &Runtime, ty: &Type) -> Result<Primed, BoxError> {
    let request = WatchListRequest {
        r#type: Some(ty.clone()),
        tenancy: Some(Tenancy::new(WILDCARD, WILDCARD)),
        name_prefix: String::new(),
    };
    let failed = |error: RpcError| watch_failure(controller, error);
    let mut events = runtime.client.watch_list(request).await.map_err(failed)?;
    let mut found = Vec::new();
    while let Some(event) = events.next().await {
        match event.map_err(failed)? {
            WatchEvent::EndOfSnapshot => return Ok(Primed { events, found }),
            event @ WatchEvent::Upsert(_) => {
                if let Some(resource) = apply(runtime, event)? {
                    found.push(resource);
                }
            }
            // It may go while the snapshot is read, of which it is a part.
            event @ WatchEvent::Delete(_) => {
                apply(runtime, event)?;
            }
        }
    }
    // Not taken for complete: reconciles would delete what they do not find in the cache.
    Err("watch ended before its snapshot was complete".into())
}

/// Deviation: upstream ends the process when a watch is invalid.
fn watch_failure(controller: &Controller, error: RpcError) -> BoxError {
    // Everything else may pass by itself; a watch that is malformed never does.
    if error.code() != Code::InvalidArgument {
        return error.into();
    }
    let text = format!(
        "controller {} attempted to initiate an invalid watch: \"{error}\". This is a bug within the controller.",
        controller.name
    );
    tracing::error!(controller = controller.name, "{text}");
    text.into()
}

/// Brings the cache up to date with an event; gives its resource.
fn apply(runtime: &Runtime, event: WatchEvent) -> Result<Option<Arc<Resource>>, BoxError> {
    Ok(match event {
        WatchEvent::Upsert(resource) => {
            runtime.cache.insert(&resource)?;
            Some(resource)
        }
        WatchEvent::Delete(resource) => {
            runtime.cache.delete(&resource)?;
            Some(resource)
        }
        WatchEvent::EndOfSnapshot => None,
    })
}

/// Calls `add` for all that a watch found, of low priority, and goes on to find.
async fn follow(
    runtime: &Runtime,
    primed: Primed,
    add: impl Fn(Arc<Resource>, Priority),
) -> Result<(), BoxError> {
    let Primed { mut events, found } = primed;
    for resource in found {
        add(resource, Priority::Low);
    }
    while let Some(event) = events.next().await {
        // Into the cache first, where whoever handles the request looks for it.
        if let Some(resource) = apply(runtime, event?)? {
            add(resource, Priority::Normal);
        }
    }
    // A watch ends when the store was restored or it fell behind: the run begins again with a snapshot.
    Err("watch ended".into())
}

async fn follow_managed(
    runtime: &Runtime,
    primed: Primed,
    requests: &WorkQueue<Request>,
) -> Result<(), BoxError> {
    let add = |resource: Arc<Resource>, priority| {
        requests.add_with(Request::new(resource.id.clone().unwrap_or_default()), priority);
    };
    follow(runtime, primed, add).await
}

async fn follow_dependency(
    runtime: &Runtime,
    primed: Primed,
    changes: Arc<WorkQueue<Changed>>,
) -> Result<(), BoxError> {
    follow(runtime, primed, |resource, priority| changes.add_with(Changed::new(resource), priority))
        .await
}

async fn follow_custom(watch: &CustomWatch, queue: Arc<WorkQueue<Event>>) -> Result<(), BoxError> {
    let mut events = (watch.source)();
    while let Some(event) = events.next().await {
        queue.add(event);
    }
    Ok(())
}

async fn map_changes(
    controller: &Controller,
    runtime: &Runtime,
    watch: &DependencyWatch,
    queue: Arc<WorkQueue<Changed>>,
    requests: &WorkQueue<Request>,
) -> Result<(), BoxError> {
    map_all(controller, &queue, requests, |changed: Changed| async move {
        let mut mapped = Vec::new();
        for resource in changed.versions() {
            mapped.extend(watch.mapper.map(runtime, resource).await?);
        }
        Ok(mapped)
    })
    .await
}

async fn map_events(
    controller: &Controller,
    runtime: &Runtime,
    watch: &CustomWatch,
    queue: Arc<WorkQueue<Event>>,
    requests: &WorkQueue<Request>,
) -> Result<(), BoxError> {
    map_all(controller, &queue, requests, |event| (watch.mapper)(runtime.clone(), event)).await
}

/// Maps what is in the queue, one by one; what fails is repeated.
async fn map_all<T: QueueItem, F>(
    controller: &Controller,
    queue: &WorkQueue<T>,
    requests: &WorkQueue<Request>,
    map: impl Fn(T) -> F + Send + Sync,
) -> Result<(), BoxError>
where
    F: Future<Output = Result<Vec<Request>, BoxError>> + Send,
{
    while let Some(item) = queue.get().await {
        match contained(controller, || map(item.clone())).await {
            Ok(mapped) => {
                queue.forget(&item);
                for request in mapped {
                    add_request(controller, requests, request);
                }
            }
            Err(error) => {
                tracing::warn!(controller = controller.name, error = %error, "mapping failed, retrying");
                queue.add_rate_limited(item.clone());
            }
        }
        queue.done(&item);
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn add_request(controller: &Controller, requests: &WorkQueue<Request>, request: Request) {
    if request.id.is_of_type(&controller.managed) {
        requests.add(request);
    } else {
        tracing::error!(
            controller = controller.name,
            id = %request.id,
            "dependency mapper returned request for a resource of the wrong type"
        );
    }
}

/// Waits for a request, and for its turn where the controller has a limit.
async fn next_request(controller: &Controller, requests: &WorkQueue<Request>) -> Option<Request> {
    match &controller.rate {
        Some(bucket) => bucket.take(requests.get()).await,
        None => requests.get().await,
    }
}

/// Reconciles what the queue gives, as one worker.
async fn reconcile_all(
    controller: &Controller,
    runtime: &Runtime,
    requests: &WorkQueue<Request>,
) -> Result<(), BoxError> {
    let Some(reconciler) = &controller.reconciler else { return Ok(()) };
    while let Some(request) = next_request(controller, requests).await {
        let started = Instant::now();
        let result = contained(controller, || reconciler.reconcile(runtime, &request)).await;
        measure::reconciled(&controller.name, requests.len(), started.elapsed(), result.is_ok());
        match result {
            Ok(Outcome::Done) => {
                requests.forget(&request);
                force_later(controller, runtime, requests, &request).await;
            }
            Ok(Outcome::RequeueAfter(delay)) => {
                requests.forget(&request);
                requests.add_after(request.clone(), delay, false);
            }
            Err(error) => {
                let (name, id) = (&controller.name, &request.id);
                tracing::warn!(controller = name, resource = %id, error = %error, "reconcile failed, retrying");
                requests.add_rate_limited(request.clone());
            }
        }
        // And yields: a queue that is never empty would keep the rest of the join from running.
        requests.done(&request);
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Plans the next reconcile though nothing may change, if the resource is
/// there: up to a fifth earlier than the interval, so that not all come at
/// once.
async fn force_later(
    controller: &Controller,
    runtime: &Runtime,
    requests: &WorkQueue<Request>,
    request: &Request,
) {
    match runtime.client.read(request.id.clone()).await {
        Ok(_) => {
            let earlier = controller.force_every.mul_f64(fastrand::f64() / 5.0);
            requests.add_low_after(request.clone(), controller.force_every.saturating_sub(earlier));
        }
        Err(error) if error.code() == Code::NotFound => {}
        Err(error) => {
            tracing::debug!(controller = controller.name, error = %error, "cannot plan the next reconcile");
        }
    }
}

/// Runs user code, and turns its panic into an error.
async fn contained<T, F>(controller: &Controller, run: impl FnOnce() -> F) -> Result<T, BoxError>
where
    F: Future<Output = Result<T, BoxError>>,
{
    let result = AssertUnwindSafe(async { run().await }).catch_unwind().await;
    result.unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        tracing::error!(controller = controller.name, panic = text, "controller panic");
        Err(format!("panic [recovered]: {text}").into())
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("not a text")
}
