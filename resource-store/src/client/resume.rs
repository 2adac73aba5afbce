//! A watch that goes on through lost connections and restored stores.
//!
//! The protocol has nothing to resume: a new watch begins with a snapshot. This
//! one remembers what it told, compares a new snapshot with it, and tells the
//! difference only.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};

use super::ResourceClient;
use crate::{
    backend::{WatchEvent, store::key},
    code::{Code, RpcError},
    pb::{Resource, WatchListRequest},
    service::EventStream,
};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Follows a list, through whatever ends a single watch.
///
/// Tells the snapshot, one end of it, then changes, as
/// [`ResourceClient::watch_list`]. After a lost connection, a restored store, or
/// a server that lacks a leader it watches again, after a delay from 100 ms to
/// 10 s, and tells what is different from what it told before. Of changes in
/// between only the result appears: one upsert, one delete, or, where a resource
/// was deleted and created again, a delete of the old incarnation and an upsert
/// of the new one.
///
/// It holds on to the latest version of each resource that it told of. It ends
/// with an error that repeating does not cure, as a missing permission, and when
/// it is dropped.
///
/// ```no_run
/// # async fn example(client: resource_store::GrpcClient) -> Result<(), resource_store::RpcError> {
/// use futures::StreamExt as _;
/// use resource_store::{ResourceData as _, demo::v2::Artist, pb::WatchListRequest};
///
/// let request =
///     WatchListRequest { r#type: Some(Artist::resource_type()), ..WatchListRequest::default() };
/// let mut events = resource_store::resuming_watch(client, request);
/// while let Some(event) = events.next().await {
///     println!("{:?}", event?);
/// }
/// # Ok(()) }
/// ```
pub fn resuming_watch(client: impl ResourceClient, request: WatchListRequest) -> EventStream {
    let watch = Resuming {
        client: Arc::new(client),
        request,
        told: HashMap::new(),
        complete: false,
        ready: VecDeque::new(),
        stage: Stage::Apart,
        failures: 0,
    };
    stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(event) => Some((Ok(event), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct Resuming {
    client: Arc<dyn ResourceClient>,
    request: WatchListRequest,
    /// The latest version of each resource that was told of.
    told: HashMap<Vec<u8>, Arc<Resource>>,
    /// Set once the end of the first snapshot was told.
    complete: bool,
    ready: VecDeque<WatchEvent>,
    stage: Stage,
    failures: u32,
}

enum Stage {
    /// Without a watch.
    Apart,
    /// Takes a snapshot, which so far held these.
    Snapshot(EventStream, HashSet<Vec<u8>>),
    Following(EventStream),
}

impl Resuming {
    async fn next(&mut self) -> Result<WatchEvent, RpcError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let event = match &mut self.stage {
                Stage::Apart => {
                    if self.failures > 0 {
                        tokio::time::sleep(delay(self.failures, fastrand::f64())).await;
                    }
                    match self.client.watch_list(self.request.clone()).await {
                        Ok(events) => self.stage = Stage::Snapshot(events, HashSet::new()),
                        Err(error) => self.failed(error)?,
                    }
                    continue;
                }
                Stage::Snapshot(events, _) | Stage::Following(events) => events.next().await,
            };
            match event {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => self.failed(error)?,
                None => self.failed(RpcError::new(Code::Unavailable, "the watch ended"))?,
            }
        }
    }

    /// Gives the watch up; or everything, where another would not help.
    fn failed(&mut self, error: RpcError) -> Result<(), RpcError> {
        if is_final(error.code()) {
            return Err(error);
        }
        self.stage = Stage::Apart;
        self.failures = self.failures.saturating_add(1);
        tracing::debug!(error = %error, failures = self.failures, "the watch begins again");
        Ok(())
    }

    fn take(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Upsert(resource) => {
                let Some(key) = key_of(&resource) else { return };
                if let Stage::Snapshot(_, found) = &mut self.stage {
                    found.insert(key.clone());
                }
                let before = self.told.insert(key, Arc::clone(&resource));
                let Some(before) = before else {
                    return self.ready.push_back(WatchEvent::Upsert(resource));
                };
                if before.uid() != resource.uid() {
                    self.ready.push_back(WatchEvent::Delete(before));
                } else if before.version == resource.version {
                    return;
                }
                self.ready.push_back(WatchEvent::Upsert(resource));
            }
            WatchEvent::Delete(resource) => {
                let Some(key) = key_of(&resource) else { return };
                if let Stage::Snapshot(_, found) = &mut self.stage {
                    found.remove(&key);
                }
                if self.told.remove(&key).is_some() {
                    self.ready.push_back(WatchEvent::Delete(resource));
                }
            }
            WatchEvent::EndOfSnapshot => self.end_snapshot(),
        }
    }

    fn end_snapshot(&mut self) {
        self.failures = 0;
        match std::mem::replace(&mut self.stage, Stage::Apart) {
            Stage::Snapshot(events, found) => {
                let gone = self.told.extract_if(|key, _| !found.contains(key));
                self.ready.extend(gone.map(|(_, resource)| WatchEvent::Delete(resource)));
                self.stage = Stage::Following(events);
            }
            other => self.stage = other,
        }
        if !std::mem::replace(&mut self.complete, true) {
            self.ready.push_back(WatchEvent::EndOfSnapshot);
        }
    }
}

fn key_of(resource: &Resource) -> Option<Vec<u8>> {
    resource.id.as_ref().map(key::resource_key)
}

/// Returns `true` if another watch would end in the same way.
fn is_final(code: Code) -> bool {
    match code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => true,
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => false,
    }
}

/// The delay after so many failures in a row; `random`, from 0 to 1, takes up to
/// half of it away, so that not all clients of a server come back at once.
fn delay(failures: u32, random: f64) -> Duration {
    let doubled = FIRST_DELAY * 2_u32.saturating_pow(failures.saturating_sub(1).min(10));
    doubled.min(LONGEST_DELAY).mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
}
