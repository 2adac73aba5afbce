//! Random work on a log, with crashes at random operations, beside a model of what it has to keep.

use std::collections::BTreeMap;

use openraft::{RaftLogReader as _, storage::RaftLogStorage as _};

use super::{
    Entry, Faults, Log, LogId, LogOptions, Vote, append, content_of, entry_with,
    faulty_disk::FaultyDisk, id,
};
use crate::backend;

/// A log of another leader's, so that nothing is acknowledged before it is on the disk.
pub(super) const LEADER: u64 = 9;

pub(super) const OPTIONS: LogOptions = LogOptions { segment_bytes: 8 << 10, cache_bytes: 1 << 10 };

pub(super) fn open(disk: &FaultyDisk) -> backend::Result<Log> {
    Log::open_on(disk.mount(), &OPTIONS, Faults::default())
}

/// What was acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) vote: Option<Vote>,
    pub(super) entries: BTreeMap<u64, (LogId, Vec<u8>)>,
    pub(super) purged: Option<LogId>,
    pub(super) committed: Option<LogId>,
    term: u64,
}

/// A step whose end a crash may leave open.
#[derive(Debug, Clone)]
enum Step {
    Vote(Vote),
    Append(Vec<Entry>),
    Truncate(u64),
    Purge(LogId),
}

impl Model {
    fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, (id, _))| *id).max(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    /// The first entry that is not committed.
    fn uncommitted(&self) -> u64 {
        self.committed.map_or(0, |committed| committed.index + 1)
    }

    /// Commits some of the entries that are not.
    fn commit(&mut self, random: &mut fastrand::Rng) {
        let open: Vec<_> =
            self.entries.range(self.uncommitted()..).map(|(_, (id, _))| *id).collect();
        self.committed = random.choice(&open).copied().or(self.committed);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Vote(vote) => self.vote = Some(*vote),
            Step::Append(entries) => {
                for entry in entries {
                    self.entries.insert(entry.log_id.index, (entry.log_id, content_of(entry)));
                }
            }
            Step::Truncate(since) => drop(self.entries.split_off(since)),
            Step::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(*upto);
                self.committed = self.committed.max(self.purged);
            }
        }
    }

    fn step(&mut self, random: &mut fastrand::Rng) -> Step {
        match random.u32(..20) {
            0 => {
                self.term += 1;
                Step::Vote(Vote::new_committed(self.term, LEADER))
            }
            // What is committed is never truncated, and nothing else is purged.
            1 if self.uncommitted() < self.next() => {
                self.term += 1;
                Step::Truncate(random.u64(self.uncommitted()..self.next()))
            }
            2 | 3 => {
                let committed = self.entries.range(..self.uncommitted());
                let places: Vec<_> = committed.map(|(_, (id, _))| *id).collect();
                match random.choice(&places) {
                    Some(upto) => Step::Purge(*upto),
                    None => Step::Append(Vec::new()),
                }
            }
            // A snapshot that replaces the whole log.
            4 if random.bool() => Step::Purge(id(self.term, self.next() + random.u64(..20))),
            _ => {
                let next = self.next();
                let count = random.u64(1..5);
                // Some are larger than a segment.
                let most = if random.u32(..40) == 0 { 20_000 } else { 1_500 };
                let entry = |index| entry_with(id(self.term, index), random.usize(..most), random);
                Step::Append((next..next + count).map(entry).collect())
            }
        }
    }

    /// Checks that a log has what the model has.
    ///
    /// A purge is acknowledged before it is on the disk, so after a crash there may be entries
    /// that were purged.
    pub(super) async fn check(&self, log: &mut Log) -> Result<(), String> {
        let state = log.get_log_state().await.map_err(|e| e.to_string())?;
        if state.last_log_id != self.last() && state.last_log_id >= self.purged {
            return Err(format!("last: {:?}, expected {:?}", state.last_log_id, self.last()));
        }
        if state.last_purged_log_id > self.purged {
            return Err(format!(
                "purged: {:?}, expected {:?}",
                state.last_purged_log_id, self.purged
            ));
        }
        let vote = log.read_vote().await.map_err(|e| e.to_string())?;
        if vote != self.vote {
            return Err(format!("vote: {vote:?}, expected {:?}", self.vote));
        }
        let first = self.purged.map_or(0, |purged| purged.index + 1);
        let found = log.try_get_log_entries(first..).await.map_err(|e| e.to_string())?;
        let found: Vec<_> = found.iter().map(|e| (e.log_id, content_of(e))).collect();
        let expected: Vec<_> = self.entries.values().cloned().collect();
        if found != expected {
            let ids = |entries: &[(LogId, Vec<u8>)]| {
                entries.iter().map(|(id, content)| (id.index, content.len())).collect::<Vec<_>>()
            };
            return Err(format!("entries: {:?}, expected {:?}", ids(&found), ids(&expected)));
        }
        let committed = log.read_committed().await.map_err(|e| e.to_string())?;
        if committed > self.committed {
            return Err(format!("committed: {committed:?}, expected {:?}", self.committed));
        }
        Ok(())
    }
}

/// Takes a step; returns `true` if it was acknowledged.
async fn take(log: &mut Log, step: &Step) -> bool {
    match step {
        Step::Vote(vote) => log.save_vote(vote).await.is_ok(),
        Step::Append(entries) => append(log, entries.clone()).await.is_ok(),
        Step::Truncate(since) => log.truncate(id(0, *since)).await.is_ok(),
        Step::Purge(upto) => log.purge(*upto).await.is_ok(),
    }
}

/// The states that a log may be in after a crash during a step.
fn possible(model: &Model, step: &Step) -> Vec<Model> {
    let mut states = vec![model.clone()];
    let partly: Vec<Step> = match step {
        Step::Append(entries) => {
            (1..=entries.len()).map(|count| Step::Append(entries[..count].to_vec())).collect()
        }
        other => vec![other.clone()],
    };
    for step in partly {
        let mut state = model.clone();
        state.take(&step);
        states.push(state);
    }
    states
}

/// Works on one disk from a seed: lives that end with a crash or a kill.
pub(super) async fn run(
    seed: u64,
    lives: usize,
    prepare: impl Fn(&FaultyDisk),
) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = FaultyDisk::default();
    let mut model = Model { term: 1, ..Model::default() };
    let mut unsure: Option<Step> = None;
    prepare(&disk);
    for life in 0..lives {
        let named = |what: String| format!("seed {seed}, life {life}: {what}");
        // The power may go again while the log is being opened.
        if random.u32(..3) == 0 {
            disk.cut_power_after(random.u64(..12));
            drop(open(&disk));
            disk.crash(&mut random);
        }
        let mut log = open(&disk).map_err(|error| named(error.to_string()))?;
        let states = match &unsure {
            Some(step) => possible(&model, step),
            None => vec![model.clone()],
        };
        let mut refused = Vec::new();
        for state in states {
            match state.check(&mut log).await {
                Ok(()) => {
                    refused.clear();
                    model = state;
                    break;
                }
                Err(why) => refused.push(why),
            }
        }
        if !refused.is_empty() {
            return Err(named(refused.join("; or ")));
        }
        // From here on the log knows what the model knows, or the snapshot that it lacks.
        if let Some(purged) = model.purged {
            log.purge(purged).await.map_err(|e| named(e.to_string()))?;
        }
        unsure = None;
        if random.u32(..4) > 0 {
            disk.cut_power_after(random.u64(..60));
        }
        for _ in 0..random.usize(..60) {
            let step = model.step(&mut random);
            if !take(&mut log, &step).await {
                unsure = Some(step);
                break;
            }
            model.take(&step);
            model.commit(&mut random);
            log.save_committed(model.committed).await.map_err(|e| named(e.to_string()))?;
            if random.u32(..8) == 0 {
                model.check(&mut log).await.map_err(named)?;
            }
        }
        match random.u32(..4) {
            0 => {
                log.close().await;
                disk.kill();
            }
            1 => disk.kill(),
            _ => disk.crash(&mut random),
        }
        drop(log);
    }
    Ok(())
}

fn seeds() -> u64 {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    if soak { 5_000 } else { 60 }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_in_any_crash() {
    for seed in 0..seeds() {
        if let Err(why) = run(seed, 12, |_| {}).await {
            panic!("{why}");
        }
    }
}

/// The checker has to find what is wrong with a disk that promises and does nothing.
#[tokio::test]
async fn a_disk_that_does_not_sync_is_found_out() {
    for seed in 0..100 {
        if run(seed, 12, FaultyDisk::set_lying_syncs).await.is_err() {
            return;
        }
    }
    panic!("a hundred runs lost nothing");
}
