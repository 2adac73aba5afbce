//! A history made by clients of servers that may fail.
//!
//! A server's write without a version overwrites whatever is there, so each
//! name is created once, by one attempt of one task; the task that deletes it
//! goes on with another name.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Action, Answer, Attempt, History, Observed, Operation, Seen, Sighting, Violation, WatchLog,
    settle,
};
use crate::{
    backend::WatchEvent,
    client::ResourceClient,
    code::{Code, RpcError},
    pb::{DeleteRequest, Id, Resource, Tenancy, Type, WatchListRequest},
    service::EventStream,
};

/// Marks what one attempt wrote.
const MARK: &str = "attempt";
/// Pause after a failure, so that nobody is asked in a tight loop.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// A server, as its clients reach it.
#[derive(Debug, Clone)]
pub struct LoadNode {
    /// Makes eventual reads.
    pub eventual: Arc<dyn ResourceClient>,
    /// Makes strong reads.
    pub strong: Arc<dyn ResourceClient>,
}

/// The load that the clients make.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Seed of all choices; what the servers do, does the rest.
    pub seed: u64,
    /// Prefix of all names; another one for each history.
    pub prefix: String,
    /// The type of the resources; it must take any without data. By default
    /// that of the demo type `Concept`.
    pub resource_type: Type,
    /// Number of tasks that write and delete; 6 by default.
    pub writers: usize,
    /// Number of tasks that read; 4 by default.
    pub readers: usize,
    /// Number of tasks that watch, on one server after the other; 3 by default.
    pub watchers: usize,
    /// Number of names in use at a time; 5 by default.
    pub names: usize,
    /// Time limit of a call; 3 seconds by default.
    pub call_timeout: Duration,
    /// Pause of each task between two operations; 2 ms by default.
    pub rest: Duration,
    /// Time that the servers may take, when all is well again, until they answer;
    /// 30 seconds by default.
    pub patience: Duration,
}

impl LoadOptions {
    /// The usual load.
    pub fn new(seed: u64, prefix: &str) -> Self {
        Self {
            seed,
            prefix: prefix.to_owned(),
            resource_type: Type::new("demo", "v1", "Concept"),
            writers: 6,
            readers: 4,
            watchers: 3,
            names: 5,
            call_timeout: Duration::from_secs(3),
            rest: Duration::from_millis(2),
            patience: Duration::from_secs(30),
        }
    }
}

/// The operations and observations of the clients, with their numbers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// To be checked.
    pub history: History,
    /// Number of changes that were acknowledged.
    pub changed: usize,
    /// Number of changes that were refused because of their version.
    pub refused: usize,
    /// Number of changes whose outcome no answer tells.
    pub unknown: usize,
    /// Number of strong reads that were answered.
    pub reads: usize,
    /// Number of strong reads that were not.
    pub failed_reads: usize,
    /// Number of events that watches gave.
    pub events: usize,
}

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: JoinSet<Log>,
    watchers: JoinSet<(Vec<WatchLog>, Vec<Sighting>)>,
}

#[derive(Debug)]
struct Shared {
    nodes: Vec<LoadNode>,
    options: LoadOptions,
    clock: AtomicU64,
    /// Incarnation in use, by place.
    current: Vec<AtomicU64>,
    /// Every name that was ever in use.
    used: Mutex<HashSet<String>>,
    /// Workers stop.
    enough: CancellationToken,
}

/// The operations and observations of one task.
#[derive(Debug, Default)]
struct Log {
    attempts: Vec<Attempt>,
    reads: Vec<Operation>,
    sightings: Vec<Sighting>,
    failed_reads: usize,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn id(&self, name: &str) -> Id {
        Id::new(self.options.resource_type.clone(), Tenancy::new("default", "default"), name)
    }

    fn name(&self, place: usize) -> String {
        let incarnation = self.current.get(place).map_or(0, |n| n.load(Ordering::SeqCst));
        let name = format!("{}{place}-{incarnation}", self.options.prefix);
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        name
    }

    fn node(&self, random: &mut fastrand::Rng) -> Option<&LoadNode> {
        random.choice(&self.nodes)
    }

    /// The name that says to watchers that all is over.
    fn last_name(&self) -> String {
        format!("{}last", self.options.prefix)
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        timeout(self.options.call_timeout, call)
            .await
            .unwrap_or_else(|_| Err(RpcError::new(Code::DeadlineExceeded, "no answer in time")))
    }

    async fn read(
        &self,
        client: &dyn ResourceClient,
        name: &str,
    ) -> Result<Option<Resource>, RpcError> {
        match self.call(client.read(self.id(name))).await {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn version_of(stored: Option<&Resource>) -> Seen {
    stored.map(|stored| stored.version.clone())
}

fn sighting(stored: &Resource) -> Sighting {
    Sighting {
        name: stored.name().to_owned(),
        version: stored.version.clone(),
        mark: stored.metadata.get(MARK).cloned().unwrap_or_default(),
    }
}

impl Load {
    /// Sets clients of the servers to work.
    pub fn start(nodes: Vec<LoadNode>, options: LoadOptions) -> Self {
        let mut random = fastrand::Rng::with_seed(options.seed);
        let shared = Arc::new(Shared {
            nodes,
            clock: AtomicU64::new(1),
            current: (0..options.names.max(1)).map(|_| AtomicU64::new(0)).collect(),
            used: Mutex::default(),
            enough: CancellationToken::new(),
            options,
        });
        let (mut workers, mut watchers) = (JoinSet::new(), JoinSet::new());
        for number in 0..shared.options.writers {
            workers.spawn(write(Arc::clone(&shared), number, random.fork()));
        }
        for _ in 0..shared.options.readers {
            workers.spawn(read(Arc::clone(&shared), random.fork()));
        }
        for number in 0..shared.options.watchers {
            watchers.spawn(watch(Arc::clone(&shared), number, random.fork()));
        }
        Self { shared, workers, watchers }
    }

    /// Ends the work. By then all servers have to be well.
    ///
    /// # Errors
    ///
    /// What cannot be, or that the servers do not answer.
    pub async fn finish(mut self) -> Result<LoadReport, Violation> {
        self.shared.enough.cancel();
        let mut all = Log::default();
        while let Some(done) = self.workers.join_next().await {
            let log = joined(done)?;
            all.attempts.extend(log.attempts);
            all.reads.extend(log.reads);
            all.sightings.extend(log.sightings);
            all.failed_reads += log.failed_reads;
        }
        let last = self.final_reads(&mut all).await?;
        self.write_last().await?;
        let mut watches = Vec::new();
        let limit = self.shared.options.patience;
        while let Some(done) = timeout(limit, self.watchers.join_next())
            .await
            .map_err(|_elapsed| Violation("a watch did not come to the end".to_owned()))?
        {
            let (logs, sightings) = joined(done)?;
            watches.extend(logs);
            all.sightings.extend(sightings);
        }
        report(all, watches, &last)
    }

    /// Reads every name until that works.
    async fn final_reads(&self, all: &mut Log) -> Result<BTreeMap<String, Seen>, Violation> {
        let used = self.shared.used.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut last = BTreeMap::new();
        for name in used {
            let (began, stored, ended) = self
                .until_answered(|node| {
                    let name = name.clone();
                    async move {
                        let began = self.shared.tick();
                        let stored = self.shared.read(&*node.strong, &name).await?;
                        Ok((began, stored, self.shared.tick()))
                    }
                })
                .await?;
            all.sightings.extend(stored.as_ref().map(sighting));
            let seen = version_of(stored.as_ref());
            let action = Action::Read(seen.clone());
            all.reads.push(Operation { name: name.clone(), began, ended, action });
            last.insert(name, seen);
        }
        Ok(last)
    }

    async fn write_last(&self) -> Result<(), Violation> {
        let last = Resource::new(self.shared.id(&self.shared.last_name()));
        self.until_answered(|node| {
            let last = last.clone();
            async move { self.shared.call(node.strong.write(last)).await }
        })
        .await?;
        Ok(())
    }

    async fn until_answered<'a, T, F>(
        &'a self,
        call: impl Fn(&'a LoadNode) -> F,
    ) -> Result<T, Violation>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let limit = Instant::now() + self.shared.options.patience;
        for node in self.shared.nodes.iter().cycle() {
            match call(node).await {
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() > limit => {
                    return Err(Violation(format!("the servers do not recover: {error}")));
                }
                Err(_) => sleep(AFTER_FAILURE).await,
            }
        }
        Err(Violation("there are no servers".to_owned()))
    }
}

fn joined<T>(done: Result<T, JoinError>) -> Result<T, Violation> {
    done.map_err(|error| Violation(format!("a client failed: {error}")))
}

fn report(
    all: Log,
    watches: Vec<WatchLog>,
    last: &BTreeMap<String, Seen>,
) -> Result<LoadReport, Violation> {
    let count = |of: fn(&Answer) -> bool| all.attempts.iter().filter(|a| of(&a.answer)).count();
    let mut report = LoadReport {
        changed: count(|answer| matches!(answer, Answer::Done(_))),
        refused: count(|answer| *answer == Answer::Refused),
        unknown: count(|answer| *answer == Answer::Unknown),
        reads: all.reads.len(),
        failed_reads: all.failed_reads,
        events: watches.iter().map(|watch| watch.events.len()).sum(),
        history: History::default(),
    };
    let mut operations = settle(all.attempts, &all.sightings, last)?;
    operations.extend(all.reads);
    report.history = History { operations, watches };
    Ok(report)
}

/// Changes what it last saw. Each place has one task that creates and deletes.
async fn write(shared: Arc<Shared>, number: usize, mut random: fastrand::Rng) -> Log {
    let mut log = Log::default();
    let places = shared.current.len();
    let mut created = HashSet::new();
    let mut attempts = 0_u64;
    while !shared.enough.is_cancelled() {
        sleep(shared.options.rest).await;
        let place = random.usize(..places);
        let name = shared.name(place);
        let owner = place % shared.options.writers == number;
        let Some(node) = shared.node(&mut random) else { return log };
        // Read and changed through one server: what it told of, it knows of.
        let Ok(stored) = shared.read(&*node.strong, &name).await else {
            sleep(AFTER_FAILURE).await;
            continue;
        };
        log.sightings.extend(stored.as_ref().map(sighting));
        let delete = stored.is_some() && owner && random.u8(..12) == 0;
        if stored.is_none() {
            if !owner {
                continue;
            }
            if !created.insert(name.clone()) {
                // Deleted, or its creation came to nothing: on with another.
                next_incarnation(&shared, place);
                continue;
            }
        }
        attempts += 1;
        let mark = (!delete).then(|| format!("{number}-{attempts}"));
        let attempt = attempt(&shared, node, name, stored, mark).await;
        let failed = attempt.answer == Answer::Unknown;
        log.attempts.push(attempt);
        if delete {
            next_incarnation(&shared, place);
        }
        if failed {
            sleep(AFTER_FAILURE).await;
        }
    }
    log
}

fn next_incarnation(shared: &Shared, place: usize) {
    if let Some(current) = shared.current.get(place) {
        current.fetch_add(1, Ordering::SeqCst);
    }
}

async fn attempt(
    shared: &Shared,
    node: &LoadNode,
    name: String,
    stored: Option<Resource>,
    mark: Option<String>,
) -> Attempt {
    let expected = version_of(stored.as_ref());
    let began = shared.tick();
    let result = match (&mark, stored) {
        (None, Some(stored)) => {
            let request = DeleteRequest { id: stored.id, version: stored.version };
            shared.call(node.strong.delete(request)).await.map(|()| None)
        }
        (mark, stored) => {
            let mut resource = stored.unwrap_or_else(|| Resource::new(shared.id(&name)));
            let mark = mark.clone().unwrap_or_default();
            resource.metadata.insert(MARK.to_owned(), mark);
            shared.call(node.strong.write(resource)).await.map(|stored| Some(stored.version))
        }
    };
    let ended = shared.tick();
    let answer = match result {
        Ok(left) => Answer::Done(left),
        Err(error) if matches!(error.code(), Code::Aborted | Code::FailedPrecondition) => {
            Answer::Refused
        }
        Err(_) => Answer::Unknown,
    };
    Attempt { name, mark, expected, began, ended, answer }
}

async fn read(shared: Arc<Shared>, mut random: fastrand::Rng) -> Log {
    let mut log = Log::default();
    while !shared.enough.is_cancelled() {
        sleep(shared.options.rest).await;
        let name = shared.name(random.usize(..shared.current.len()));
        let Some(node) = shared.node(&mut random) else { return log };
        let began = shared.tick();
        let Ok(stored) = shared.read(&*node.strong, &name).await else {
            log.failed_reads += 1;
            sleep(AFTER_FAILURE).await;
            continue;
        };
        let ended = shared.tick();
        log.sightings.extend(stored.as_ref().map(sighting));
        let action = Action::Read(version_of(stored.as_ref()));
        log.reads.push(Operation { name, began, ended, action });
    }
    log
}

/// Watches until all is over; a watch that ends is followed by another, on the
/// next server.
async fn watch(
    shared: Arc<Shared>,
    number: usize,
    mut random: fastrand::Rng,
) -> (Vec<WatchLog>, Vec<Sighting>) {
    let (mut logs, mut sightings) = (Vec::new(), Vec::new());
    let request = WatchListRequest {
        r#type: Some(shared.options.resource_type.clone()),
        tenancy: Some(Tenancy::new("default", "default")),
        name_prefix: shared.options.prefix.clone(),
    };
    for node in shared.nodes.iter().cycle().skip(number) {
        if let Ok(events) = shared.call(node.eventual.watch_list(request.clone())).await {
            let mut log = WatchLog::default();
            follow(&shared, node, events, &mut log, &mut sightings, &mut random).await;
            let complete = log.complete;
            logs.push(log);
            if complete {
                break;
            }
        }
        sleep(AFTER_FAILURE).await;
    }
    (logs, sightings)
}

/// Follows one watch to its end.
async fn follow(
    shared: &Shared,
    node: &LoadNode,
    mut events: EventStream,
    log: &mut WatchLog,
    sightings: &mut Vec<Sighting>,
    random: &mut fastrand::Rng,
) {
    let mut in_snapshot = true;
    while let Some(Ok(event)) = events.next().await {
        let (resource, deleted) = match event {
            WatchEvent::EndOfSnapshot => {
                in_snapshot = false;
                if log.complete {
                    return;
                }
                continue;
            }
            WatchEvent::Upsert(resource) => (resource, false),
            WatchEvent::Delete(resource) => (resource, true),
        };
        let (name, version) = (resource.name().to_owned(), resource.version.clone());
        if name == shared.last_name() {
            log.complete = true;
            // In a snapshot, more may follow.
            if !in_snapshot {
                return;
            }
            continue;
        }
        sightings.push(sighting(&resource));
        if in_snapshot {
            log.snapshot.push((name, version));
            continue;
        }
        let read_after = if random.u8(..8) == 0 {
            shared.read(&*node.eventual, &name).await.ok().map(|read| version_of(read.as_ref()))
        } else {
            None
        };
        log.events.push(Observed { name, version, deleted, read_after });
    }
    if in_snapshot {
        // Half a snapshot says nothing of what was not there.
        *log = WatchLog::default();
    }
}
