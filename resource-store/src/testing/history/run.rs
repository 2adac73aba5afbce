//! Making a history.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use tokio::{sync::Barrier, task::JoinSet};

use super::{Action, History, Observed, Operation, Seen, WatchLog};
use crate::{
    backend::{Backend, Consistency, Error, Query, Result, Watch, WatchEvent},
    pb::{Id, Resource, Tenancy, Type},
};

/// The size of a history, and the seed of its choices.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HistoryOptions {
    /// Seed of all choices; the schedule of the threads does the rest.
    pub seed: u64,
    /// Number of tasks that write and delete; 8 by default.
    pub writers: usize,
    /// Number of tasks that read; 8 by default.
    pub readers: usize,
    /// Number of tasks that watch; 16 by default.
    pub watchers: usize,
    /// Number of operations of all writers and readers together, half each; 10,000
    /// by default.
    pub operations: usize,
    /// Number of names; 10 by default.
    pub names: usize,
    /// `true` if all watches begin before the first write; `false` by default. A watch that begins
    /// among writes may merge what it missed while it took its snapshot, which the check takes
    /// for a gap: so a history of more than some 250 changes is to be watched from its start.
    pub watched_from_start: bool,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            writers: 8,
            readers: 8,
            watchers: 16,
            operations: 10_000,
            names: 10,
            watched_from_start: false,
        }
    }
}

struct Shared {
    backend: Arc<dyn Backend>,
    clock: AtomicU64,
    writes_left: AtomicUsize,
    reads_left: AtomicUsize,
    names: usize,
    /// The meeting of watchers that have taken their first snapshot.
    watched: Option<Barrier>,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn random_id(&self, random: &mut fastrand::Rng) -> Id {
        id(&format!("name-{}", random.usize(..self.names)))
    }
}

/// Takes one of the remaining operations; returns `false` if none is left.
fn take_turn(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn id(name: &str) -> Id {
    Id::new(Type::new("test", "v1", "History"), Tenancy::new("default", "default"), name)
}

/// The name that says to watchers that all is over.
const LAST: &str = "the-last";

/// Has many tasks work on an empty backend, and notes what they did and saw.
///
/// # Errors
///
/// What the backend answers besides what the contract foresees.
pub async fn run(backend: Arc<dyn Backend>, options: &HistoryOptions) -> Result<History> {
    let shared = Arc::new(Shared {
        backend,
        clock: AtomicU64::new(1),
        writes_left: AtomicUsize::new(options.operations.div_ceil(2)),
        reads_left: AtomicUsize::new(options.operations / 2),
        names: options.names.max(1),
        watched: options.watched_from_start.then(|| Barrier::new(options.watchers + 1)),
    });
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut watchers = JoinSet::new();
    for _ in 0..options.watchers {
        watchers.spawn(watch(Arc::clone(&shared), random.fork()));
    }
    if let Some(watched) = &shared.watched {
        watched.wait().await;
    }
    let mut workers = JoinSet::new();
    for number in 0..options.writers {
        workers.spawn(write(Arc::clone(&shared), number, options.writers, random.fork()));
    }
    for _ in 0..options.readers {
        workers.spawn(read(Arc::clone(&shared), random.fork()));
    }
    let mut history = History::default();
    while let Some(done) = workers.join_next().await {
        history.operations.extend(joined(done)?);
    }
    let last = Resource::new(id(LAST).with_uid("u"));
    shared.backend.write_cas(last).await?;
    while let Some(done) = watchers.join_next().await {
        history.watches.extend(joined(done)?);
    }
    Ok(history)
}

fn joined<T>(done: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.map_err(|e| Error::Other { operation: "history", retryable: false, source: Box::new(e) })?
}

/// Changes what it last saw. Each name has one writer that deletes it, because
/// a delete does not say whether it was the one.
async fn write(
    shared: Arc<Shared>,
    number: usize,
    writers: usize,
    mut random: fastrand::Rng,
) -> Result<Vec<Operation>> {
    let mut log = Vec::new();
    while take_turn(&shared.writes_left) {
        let name = random.usize(..shared.names);
        let id = id(&format!("name-{name}"));
        let stored = match shared.backend.read(Consistency::Strong, &id).await {
            Ok(stored) => Some(stored),
            Err(Error::NotFound) => None,
            Err(other) => return Err(other),
        };
        if random.u8(..4) == 0 {
            tokio::task::yield_now().await;
        }
        let expected: Seen = stored.as_ref().map(|s| s.version.clone());
        let delete = stored.is_some() && name % writers == number && random.bool();
        let began = shared.tick();
        let result = change(&shared, &id, stored.as_deref(), delete, &mut random).await;
        let ended = shared.tick();
        let action = match result {
            Ok(left) => Action::Change { expected, left },
            Err(Error::CasFailure | Error::WrongUid) => Action::Refused { expected },
            Err(other) => return Err(other),
        };
        log.push(Operation { name: id.name, began, ended, action });
    }
    Ok(log)
}

async fn change(
    shared: &Shared,
    id: &Id,
    stored: Option<&Resource>,
    delete: bool,
    random: &mut fastrand::Rng,
) -> Result<Seen> {
    let uid = stored.map_or_else(|| format!("{:032x}", random.u128(..)), |s| s.uid().to_owned());
    let version = stored.map(|s| s.version.clone()).unwrap_or_default();
    let id = id.clone().with_uid(&uid);
    if !delete {
        let resource = Resource { version, ..Resource::new(id) };
        return Ok(Some(shared.backend.write_cas(resource).await?.version.clone()));
    }
    shared.backend.delete_cas(&id, &version).await?;
    Ok(None)
}

async fn read(shared: Arc<Shared>, mut random: fastrand::Rng) -> Result<Vec<Operation>> {
    let mut log = Vec::new();
    while take_turn(&shared.reads_left) {
        let id = shared.random_id(&mut random);
        let began = shared.tick();
        let seen = seen(shared.backend.read(Consistency::Strong, &id).await)?;
        let ended = shared.tick();
        log.push(Operation { name: id.name, began, ended, action: Action::Read(seen) });
        if random.u8(..4) == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(log)
}

fn seen(result: Result<Arc<Resource>>) -> Result<Seen> {
    match result {
        Ok(stored) => Ok(Some(stored.version.clone())),
        Err(Error::NotFound) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Watches until all is over; a watch that closes is followed by another.
async fn watch(shared: Arc<Shared>, mut random: fastrand::Rng) -> Result<Vec<WatchLog>> {
    tokio::time::sleep(Duration::from_micros(random.u64(..2000))).await;
    let query = Query::new(id("").r#type.unwrap_or_default().group_kind(), Tenancy::new("*", "*"));
    let mut logs = Vec::new();
    loop {
        let mut events = shared.backend.watch_list(&query).await?;
        let mut log = WatchLog::default();
        let mut in_snapshot = true;
        if let Some(watched) = shared.watched.as_ref().filter(|_| logs.is_empty()) {
            // Nothing is stored yet.
            in_snapshot = events.next().await.transpose()? != Some(WatchEvent::EndOfSnapshot);
            watched.wait().await;
        }
        follow(&shared, &mut events, &mut log, &mut random, in_snapshot).await?;
        let complete = log.complete;
        logs.push(log);
        if complete {
            return Ok(logs);
        }
    }
}

async fn follow(
    shared: &Shared,
    events: &mut Watch,
    log: &mut WatchLog,
    random: &mut fastrand::Rng,
    mut in_snapshot: bool,
) -> Result<()> {
    while let Some(event) = events.next().await {
        let (resource, deleted) = match event {
            Ok(WatchEvent::EndOfSnapshot) => {
                in_snapshot = false;
                if log.complete {
                    return Ok(());
                }
                continue;
            }
            Ok(WatchEvent::Upsert(resource)) => (resource, false),
            Ok(WatchEvent::Delete(resource)) => (resource, true),
            Err(Error::WatchClosed) => return Ok(()),
            Err(other) => return Err(other),
        };
        let (name, version) = (resource.name().to_owned(), resource.version.clone());
        if name == LAST {
            log.complete = true;
            // In a snapshot, more may follow.
            if !in_snapshot {
                return Ok(());
            }
        } else if in_snapshot {
            log.snapshot.push((name, version));
        } else {
            let read_after = if random.u8(..8) == 0 {
                Some(seen(shared.backend.read(Consistency::Eventual, &id(&name)).await)?)
            } else {
                None
            };
            log.events.push(Observed { name, version, deleted, read_after });
        }
    }
    Ok(())
}
