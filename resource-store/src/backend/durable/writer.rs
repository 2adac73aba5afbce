//! The thread that changes the file, one batch after the other.
//!
//! All changes that wait share one transaction, and one sync: the longer a sync
//! takes, the more changes share the next.

use std::sync::{
    Arc,
    mpsc::{Receiver, RecvTimeoutError},
};

use prost::Message as _;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use super::{
    layout::Place, options::SyncPolicy, table::Table, table_writer::TableWriter, versions::Versions,
};
use crate::{
    backend::{
        Error, Result,
        store::{change::Change, topics::Topics},
    },
    pb::{Id, Resource},
};

/// Up to which number versions may have been given.
pub(super) const RESERVED: &[u8] = b"reserved";

/// Upper bounds of one group commit: number of changes, and approximate bytes.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 4 << 20;

pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// An order to the writer's thread.
pub(super) enum Job {
    Change(Request, OwnedSemaphorePermit),
    Restore(Step, Reply<()>),
    Close(Reply<()>),
}

/// A change to carry out.
pub(super) enum Request {
    Write(Box<Resource>, Reply<Arc<Resource>>),
    Delete(Box<Id>, String, Reply<()>),
}

/// A step of a restore, in the order in which they are carried out.
pub(super) enum Step {
    /// Throw away what was staged.
    Clear,
    Stage(Vec<Arc<Resource>>),
    /// Replace everything; versions go on after this number.
    Adopt(u64),
}

/// A change that was tried, and who waits for it.
enum Tried {
    Write(Result<Change>, Reply<Arc<Resource>>),
    Delete(Result<Option<Change>>, Reply<()>),
}

/// The thread's own.
pub(super) struct Writer {
    table: Table,
    topics: Arc<Topics>,
    jobs: Receiver<Job>,
    versions: Versions,
    sync: SyncPolicy,
    /// When what is not on the disk has to be there.
    sync_due: Option<Instant>,
}

impl Writer {
    /// Prepares an opened table.
    pub(super) fn new(
        table: Table,
        topics: Arc<Topics>,
        jobs: Receiver<Job>,
        sync: SyncPolicy,
    ) -> Result<Self> {
        let current = table.current();
        let reserved = current.number(RESERVED)?.unwrap_or(0);
        let versions = Versions::after(reserved.max(current.index()));
        drop(current);
        let mut writer = Self { table, topics, jobs, versions, sync, sync_due: None };
        writer.change(true, |writer, _| writer.clear(Place::Incoming))?;
        Ok(writer)
    }

    /// Works until the store is closed, or nobody can ask for anything any
    /// more.
    pub(super) fn run(mut self) {
        let closing = loop {
            let apart = match self.next() {
                Ok(Some(Job::Change(first, permit))) => self.batch(first, permit),
                Ok(Some(job)) => Some(job),
                Ok(None) => {
                    self.sync_now();
                    None
                }
                Err(_) => break None,
            };
            if let Some(reply) = apart.and_then(|job| self.apart(job)) {
                break Some(reply);
            }
        };
        let closed = self.table.close();
        self.topics.close_all();
        match closing {
            Some(reply) => drop(reply.send(closed)),
            None => {
                if let Err(error) = closed {
                    tracing::error!(error = &error as &dyn std::error::Error, "store not closed");
                }
            }
        }
    }

    /// The next job; none when it is time to sync.
    fn next(&self) -> Result<Option<Job>, RecvTimeoutError> {
        let Some(due) = self.sync_due else {
            return Ok(Some(self.jobs.recv()?));
        };
        match self.jobs.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Does a change and those that wait behind it. Gives the job that came
    /// next and is none.
    fn batch(&mut self, first: Request, permit: OwnedSemaphorePermit) -> Option<Job> {
        let mut bytes = first.bytes();
        let mut requests = vec![first];
        let mut permits = vec![permit];
        let mut next = None;
        while requests.len() < BATCH && bytes < BATCH_BYTES {
            match self.jobs.try_recv() {
                Ok(Job::Change(request, permit)) => {
                    bytes += request.bytes();
                    requests.push(request);
                    permits.push(permit);
                }
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        self.commit(requests);
        drop(permits);
        next
    }

    fn commit(&mut self, requests: Vec<Request>) {
        let mut tried = Vec::with_capacity(requests.len());
        let due = self.sync_due.is_some_and(|due| due <= Instant::now());
        let result = self.change(due, |writer, versions| {
            for request in requests {
                tried.push(request.attempt(writer, versions));
            }
            Ok(())
        });
        if let Err(error) = result {
            let reason = error.to_string();
            for tried in tried {
                tried.fail(|| self.table.view().file().transaction(&reason).during("write"));
            }
            return;
        }
        // All of it can be read now, so watches may hear of it.
        for tried in &tried {
            if let Some(change) = tried.change() {
                self.topics.publish(change);
            }
        }
        tried.into_iter().for_each(Tried::answer);
    }

    /// Does what is no part of a batch. Gives whom to tell that the store is
    /// closed, if that is it.
    fn apart(&mut self, job: Job) -> Option<Reply<()>> {
        match job {
            Job::Change(request, permit) => {
                self.commit(vec![request]);
                drop(permit);
            }
            Job::Restore(step, reply) => {
                let done = self.restore(step);
                // Who gave up waiting wants no answer.
                drop(reply.send(done));
            }
            Job::Close(reply) => return Some(reply),
        }
        None
    }

    fn restore(&mut self, step: Step) -> Result<()> {
        let adopts = matches!(step, Step::Adopt(_));
        self.change(true, |writer, versions| match step {
            Step::Clear => writer.clear(Place::Incoming),
            Step::Stage(resources) => {
                resources.iter().try_for_each(|resource| writer.stage(Place::Incoming, resource))
            }
            Step::Adopt(highest) => {
                versions.skip(highest);
                writer.show(Place::Incoming, versions.next()?)
            }
        })?;
        if adopts {
            self.topics.close_all();
        }
        Ok(())
    }

    /// Changes the table as durably as the policy asks for, or more so.
    fn change<T>(
        &mut self,
        durable: bool,
        work: impl FnOnce(&mut TableWriter<'_>, &mut Versions) -> Result<T>,
    ) -> Result<T> {
        let window = match self.sync {
            SyncPolicy::EveryCommit | SyncPolicy::Never => None,
            SyncPolicy::Within(window) => Some(window),
        };
        let versions = &mut self.versions;
        let synced = durable || window.is_none() || versions.to_reserve().is_some();
        let (result, reserved) = self.table.change(synced, |writer| {
            let result = work(writer, versions)?;
            let reserve = versions.to_reserve().filter(|_| synced);
            if let Some(up_to) = reserve {
                writer.set_number(RESERVED, up_to)?;
            }
            Ok((result, reserve))
        })?;
        if let Some(up_to) = reserved {
            self.versions.reserved(up_to);
        }
        self.sync_due = match window {
            Some(window) if !synced => self.sync_due.or_else(|| Instant::now().checked_add(window)),
            _ => None,
        };
        Ok(result)
    }

    fn sync_now(&mut self) {
        self.sync_due = None;
        if let Err(error) = self.table.sync() {
            tracing::error!(error = &error as &dyn std::error::Error, "store not synced");
        }
    }
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(resource, _) => resource.encoded_len(),
            Self::Delete(..) => 0,
        }
    }

    fn attempt(self, writer: &mut TableWriter<'_>, versions: &mut Versions) -> Tried {
        match self {
            Self::Write(resource, reply) => {
                Tried::Write(versions.next().and_then(|n| writer.write(*resource, n)), reply)
            }
            Self::Delete(id, version, reply) => {
                Tried::Delete(versions.next().and_then(|n| writer.delete(&id, &version, n)), reply)
            }
        }
    }
}

impl Tried {
    fn change(&self) -> Option<&Change> {
        match self {
            Self::Write(result, _) => result.as_ref().ok(),
            Self::Delete(result, _) => result.as_ref().ok()?.as_ref(),
        }
    }

    // Who gave up waiting wants no answer.

    fn answer(self) {
        match self {
            Self::Write(result, reply) => drop(reply.send(result.map(|change| change.resource))),
            Self::Delete(result, reply) => drop(reply.send(result.map(drop))),
        }
    }

    fn fail(self, error: impl FnOnce() -> Error) {
        match self {
            Self::Write(_, reply) => drop(reply.send(Err(error()))),
            Self::Delete(_, reply) => drop(reply.send(Err(error()))),
        }
    }
}
