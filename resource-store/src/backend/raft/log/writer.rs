//! The thread that writes the log.

use std::{
    io,
    sync::{Arc, Mutex, mpsc},
};

use openraft::storage::LogFlushed;
use tokio::sync::oneshot;

use super::{
    cache::Cache,
    file::{Batch, LogFile},
};
use crate::backend::{
    Error, Result,
    raft::{
        config::Faults,
        log::durable_index::DurableIndex,
        types::{Entry, LogId, Types, Vote},
    },
    store::sync::lock,
};

/// How many bytes are put into one transaction, about.
const MOST_BYTES: usize = 16 << 20;

type Done = oneshot::Sender<io::Result<()>>;

/// What the writer is to do.
pub(super) enum Work {
    /// Appends entries, and tells when they are on the disk.
    Append {
        entries: Vec<Entry>,
        callback: Option<LogFlushed<Types>>,
    },
    Vote(Vote, Done),
    /// To be written with something else.
    Committed(LogId),
    /// Throws entries from an index on away.
    Truncate(u64, Done),
    /// Throws entries up to one away.
    Purge(LogId, Done),
    /// Writes what is left, and ends.
    Close(oneshot::Sender<()>),
}

/// Who is told of the end of a transaction.
enum Waiting {
    Callback(LogFlushed<Types>),
    Done(Done),
    Closed(oneshot::Sender<()>),
}

/// A handle to the thread.
#[derive(Debug)]
pub(super) struct Writer {
    work: mpsc::Sender<Work>,
}

impl Writer {
    pub(super) fn start(
        file: Arc<LogFile>,
        durable: DurableIndex,
        cache: Arc<Mutex<Cache>>,
        faults: Faults,
    ) -> Result<Self> {
        let (work, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("raft-log".to_owned());
        thread.spawn(move || run(&file, &durable, &cache, &faults, &receiver)).map_err(
            |error| Error::Other { operation: "open", retryable: true, source: Box::new(error) },
        )?;
        Ok(Self { work })
    }

    /// Tells the thread what to do. If it has ended, the senders within the
    /// work are dropped, which says so.
    pub(super) fn send(&self, work: Work) {
        if self.work.send(work).is_err() {
            tracing::debug!("the writer of the log has ended");
        }
    }
}

fn run(
    file: &LogFile,
    durable: &DurableIndex,
    cache: &Mutex<Cache>,
    faults: &Faults,
    work: &mpsc::Receiver<Work>,
) {
    let mut batch = Batch::default();
    let mut failed = None;
    while let Ok(first) = work.recv() {
        let mut waiting = Vec::new();
        let mut closing = add(first, &mut batch, &mut waiting);
        while !closing && batch.bytes() < MOST_BYTES {
            let Ok(next) = work.try_recv() else { break };
            closing = add(next, &mut batch, &mut waiting);
        }
        let last = batch.last();
        // Which entries are committed is worth no sync of its own.
        let needed = !waiting.is_empty() || last.is_some();
        if needed {
            durable.writes(true);
            faults.disk();
        }
        let result = match &failed {
            Some(reason) => Err(io::Error::other(String::clone(reason))),
            None if needed => file.write(&mut batch).map_err(io::Error::other),
            None => Ok(()),
        };
        durable.writes(false);
        match &result {
            Ok(()) => {
                if let Some(last) = last {
                    lock(cache).flushed(last.index + 1);
                    durable.flushed(last);
                }
            }
            Err(error) => {
                failed.get_or_insert_with(|| error.to_string());
                durable.fail();
            }
        }
        if closing {
            file.close();
        }
        for waiting in waiting {
            answer(waiting, &result);
        }
        if closing {
            return;
        }
    }
}

/// Adds work to a batch. Gives whether it is the last.
fn add(work: Work, batch: &mut Batch, waiting: &mut Vec<Waiting>) -> bool {
    match work {
        Work::Append { entries, callback } => {
            batch.append(&entries);
            waiting.extend(callback.map(Waiting::Callback));
        }
        Work::Vote(vote, done) => {
            batch.vote = Some(vote);
            waiting.push(Waiting::Done(done));
        }
        Work::Committed(committed) => batch.committed = Some(committed),
        Work::Truncate(since, done) => {
            batch.truncate(since);
            waiting.push(Waiting::Done(done));
        }
        Work::Purge(upto, done) => {
            batch.purged = Some(upto);
            waiting.push(Waiting::Done(done));
        }
        Work::Close(done) => {
            batch.is_last = true;
            waiting.push(Waiting::Closed(done));
            return true;
        }
    }
    false
}

fn answer(waiting: Waiting, result: &io::Result<()>) {
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
        Waiting::Closed(done) => {
            if done.send(()).is_err() {
                tracing::debug!("nobody waits for the end of the log");
            }
        }
    }
}
