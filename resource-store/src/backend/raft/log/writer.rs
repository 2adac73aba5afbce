//! The thread that writes the log: it takes all that is queued, writes it at once, syncs once,
//! and then answers whoever waits.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
};

use openraft::storage::LogFlushed;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{
    cache::Cache,
    durable_index::DurableIndex,
    error::LogError,
    hard_state::HardState,
    record::{self, Kind},
    sync_times::SyncTimes,
    wal::{SPARE_RETRY, Wal},
};
use crate::backend::{
    Error, Result,
    raft::{
        config::Faults,
        types::{LogId, Types},
    },
    store::sync::lock,
};

/// Bytes of records after which a write takes no more of the queue.
const WRITE_LIMIT: usize = 16 << 20;

/// Says when something is durable, or why it is not.
pub(super) type Done = oneshot::Sender<io::Result<()>>;
/// Changes the hard state.
pub(super) type Change = Box<dyn FnOnce(&mut HardState) + Send>;

/// A task of the thread.
pub(super) enum Work {
    /// Appends the records of entries, whose last is `last`.
    Append { records: Vec<u8>, last: LogId, callback: Option<LogFlushed<Types>> },
    /// Changes the hard state, after all before it is durable.
    HardState(Change, Done),
    /// Removes entries from `since` on, which leaves `last`.
    Truncate { since: u64, last: Option<LogId>, done: Done },
    /// Removes entries up to one. Goes to the disk with whatever is written next, unless it frees
    /// space: a crash in between only brings entries back that nobody needs.
    Purge(LogId),
    /// Writes the rest, and ends the thread.
    Close(oneshot::Sender<()>),
}

/// A caller that waits for the end of a write.
enum Waiting {
    Callback(LogFlushed<Types>),
    Done(Done),
}

/// State that the thread shares with the handles of the log.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) durable: DurableIndex,
    pub(super) cache: Mutex<Cache>,
    /// The last committed entry. It goes to the disk with whatever is written next: a node that
    /// lost it learns it again from its leader.
    pub(super) committed: Mutex<Option<LogId>>,
    pub(super) hard_state: Mutex<HardState>,
    /// Why the log takes no writes any more.
    pub(super) failure: OnceLock<String>,
    /// `true` while the disk has no room for another segment.
    pub(super) disk_full: watch::Sender<bool>,
    pub(super) sync_times: SyncTimes,
}

impl Shared {
    /// Returns the error of every write after one that failed.
    pub(super) fn stopped(&self, folder: &Path) -> Option<LogError> {
        let (folder, reason) = (folder.to_owned(), self.failure.get()?.clone());
        Some(LogError::Stopped { folder, reason })
    }
}

/// A handle to the thread.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Work>,
}

impl Writer {
    pub(super) fn start(wal: Wal, shared: Arc<Shared>, faults: Faults) -> Result<Self> {
        let (queue, receiver) = mpsc::channel();
        let committed = lock(wal.contents()).ids.committed;
        let thread = std::thread::Builder::new().name("raft-log".to_owned());
        let run = move || {
            let batch = Batch::default();
            let thread = Thread { wal, shared, faults, batch, committed };
            // The folder is free for another handle once the thread has let go of it.
            if let Some(closed) = thread.run(&receiver)
                && closed.send(()).is_err()
            {
                tracing::debug!("nobody waits for the end of the log");
            }
        };
        thread.spawn(run).map_err(|error| Error::failed("open", error))?;
        Ok(Self { queue })
    }

    /// Queues work. If the thread has ended, what waits within the work is dropped, which says so.
    pub(super) fn send(&self, work: Work) {
        if self.queue.send(work).is_err() {
            tracing::debug!("the thread of the log has ended");
        }
    }
}

/// Work that goes to the disk with one sync.
#[derive(Default)]
struct Batch {
    records: Vec<u8>,
    /// The last entry, if the batch has any that stay.
    last: Option<LogId>,
    /// The batch is worth a sync of its own.
    needed: bool,
    purges: bool,
    change: Option<Change>,
    waiting: Vec<Waiting>,
    /// The caller that waits for the end of the log; nothing comes after it.
    closing: Option<oneshot::Sender<()>>,
}

struct Thread {
    wal: Wal,
    shared: Arc<Shared>,
    faults: Faults,
    batch: Batch,
    /// The last committed entry that the log says.
    committed: Option<LogId>,
}

impl Thread {
    /// Works until the log is to be closed, and returns who waits for that.
    fn run(mut self, queue: &mpsc::Receiver<Work>) -> Option<oneshot::Sender<()>> {
        while let Some(first) = self.next(queue) {
            self.add(first);
            while !self.batch.is_full() {
                let Ok(next) = queue.try_recv() else { break };
                self.add(next);
            }
            if self.batch.needed {
                self.finish();
            }
            if self.batch.closing.is_some() {
                return self.batch.closing;
            }
        }
        None
    }

    /// Waits for work; `None` once no handle is left.
    fn next(&mut self, queue: &mpsc::Receiver<Work>) -> Option<Work> {
        loop {
            if self.wal.has_spare() || self.shared.failure.get().is_some() {
                return queue.recv().ok();
            }
            match queue.recv_timeout(SPARE_RETRY) {
                Ok(work) => return Some(work),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    self.wal.retry_spare();
                    self.tell_of_space();
                }
            }
        }
    }

    fn tell_of_space(&self) {
        let full = !self.wal.has_spare();
        self.shared.disk_full.send_if_modified(|was| std::mem::replace(was, full) != full);
    }

    fn add(&mut self, work: Work) {
        let batch = &mut self.batch;
        let needed = std::mem::replace(&mut batch.needed, true);
        match work {
            Work::Append { records, last, callback } => {
                // A lone append is written from where it is.
                if batch.records.is_empty() {
                    batch.records = records;
                } else {
                    batch.records.extend_from_slice(&records);
                }
                batch.last = Some(last);
                batch.waiting.extend(callback.map(Waiting::Callback));
            }
            Work::HardState(change, done) => {
                batch.change = Some(change);
                batch.waiting.push(Waiting::Done(done));
            }
            Work::Truncate { since, last, done } => {
                record::put_truncate(&mut batch.records, since, last.as_ref());
                // Nothing was said about what stays: the next entries tell.
                batch.last = batch.last.filter(|last| last.index < since);
                batch.waiting.push(Waiting::Done(done));
            }
            Work::Purge(upto) => {
                let next = lock(self.wal.contents()).ids.next_index();
                // Entries in the place of those that a snapshot replaces must not be misread.
                batch.needed = needed || self.wal.frees(upto.index) || upto.index >= next;
                record::put_mark(&mut batch.records, Kind::Purge, &upto);
                batch.purges = true;
            }
            Work::Close(done) => {
                batch.closing = Some(done);
            }
        }
    }

    /// Brings the batch to the disk, and answers.
    fn finish(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        self.shared.durable.writes(true);
        let begun = Instant::now();
        self.faults.disk();
        let result = match self.shared.stopped(&self.wal.folder()) {
            Some(stopped) => Err(stopped),
            None => self.write(&mut batch),
        };
        self.batch.closing = batch.closing.take();
        self.shared.durable.writes(false);
        self.shared.sync_times.record(begun.elapsed());
        match &result {
            Ok(()) => {
                if let Some(last) = batch.last {
                    lock(&self.shared.cache).flushed(last.index + 1);
                    self.shared.durable.flushed(last);
                }
            }
            Err(error) => {
                if self.shared.failure.set(error.to_string()).is_ok() {
                    tracing::error!(%error, "the log takes no writes any more");
                }
                self.shared.durable.fail();
            }
        }
        for waiting in batch.waiting {
            answer(waiting, &result);
        }
        if result.is_ok() {
            // Nobody has to wait for these.
            if batch.purges {
                self.wal.remove_free_segments();
            }
            self.wal.retry_spare();
            self.tell_of_space();
        }
    }

    fn write(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let committed = *lock(&self.shared.committed);
        let news = committed.filter(|_| committed > self.committed);
        if let Some(committed) = news
            && (!batch.records.is_empty() || batch.closing.is_some())
        {
            record::put_mark(&mut batch.records, Kind::Committed, &committed);
            self.committed = Some(committed);
        }
        self.wal.write(&mut batch.records)?;
        // A vote for another leader goes to the disk after all entries before it.
        if batch.change.is_some() || batch.closing.is_some() {
            let change = batch.change.take().unwrap_or_else(|| Box::new(|_| {}));
            self.wal.save(change)?;
            *lock(&self.shared.hard_state) = *self.wal.hard_state();
        }
        Ok(())
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.closing.is_some() || self.change.is_some() || self.records.len() >= WRITE_LIMIT
    }
}

fn answer(waiting: Waiting, result: &Result<(), LogError>) {
    let result = match result {
        Ok(()) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    };
    match waiting {
        Waiting::Callback(callback) => callback.log_io_completed(result),
        Waiting::Done(done) => {
            if done.send(result).is_err() {
                tracing::debug!("nobody waits for the log any more");
            }
        }
    }
}
