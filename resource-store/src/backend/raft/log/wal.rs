//! The open log as its thread sees it: writes at the end of the newest segment, begins segments,
//! and removes those whose entries are all purged.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    contents::Contents,
    disk::{Disk, DiskFile},
    error::LogError,
    hard_state::{self, HardState, HardStateFile, Position},
    record::{Header, seal},
    segment::{self, HEAD, Head, SPARE, Segment, create_segment},
};
use crate::backend::store::sync::lock;

/// Interval between two attempts to reserve the next segment on a full disk.
pub(super) const SPARE_RETRY: Duration = Duration::from_secs(1);

/// The log, open for writing.
#[derive(Debug)]
pub(super) struct Wal {
    disk: Arc<dyn Disk>,
    hard_state: HardStateFile,
    segment_bytes: u64,
    contents: Arc<Mutex<Contents>>,
    active: Arc<Segment>,
    /// Offset of the next record in the active segment.
    at: u64,
    spare: Option<Arc<dyn DiskFile>>,
    spare_tried: Instant,
    /// Records of the write under way, kept to use their memory again.
    steps: Vec<(Header, u64)>,
}

impl Wal {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        hard_state: HardStateFile,
        segment_bytes: u64,
        contents: Arc<Mutex<Contents>>,
        active: Arc<Segment>,
        at: u64,
    ) -> Self {
        let mut wal = Self {
            disk,
            hard_state,
            segment_bytes,
            contents,
            active,
            at,
            spare: None,
            spare_tried: Instant::now(),
            steps: Vec::new(),
        };
        wal.reserve_spare();
        wal
    }

    pub(super) fn contents(&self) -> &Arc<Mutex<Contents>> {
        &self.contents
    }

    pub(super) fn hard_state(&self) -> &HardState {
        self.hard_state.state()
    }

    /// Returns the folder of the log, for messages.
    pub(super) fn folder(&self) -> PathBuf {
        self.disk.path("")
    }

    /// Writes records at the end, and syncs once.
    ///
    /// # Errors
    ///
    /// If any step failed. Then nothing more may be written: after a sync that failed nobody knows
    /// what is on the disk, and a second sync would say that all is well.
    pub(super) fn write(&mut self, records: &mut [u8]) -> Result<(), LogError> {
        if records.is_empty() {
            return Ok(());
        }
        if self.at + records.len() as u64 > self.active.size {
            self.begin_segment(records.len() as u64)?;
        }
        self.steps.clear();
        let steps = &mut self.steps;
        seal(records, self.active.seed, self.at, |header, at| steps.push((header, at)));
        let file = &self.active.file;
        file.write_at(records, self.at).map_err(|e| self.failed("it cannot be written", e))?;
        file.sync().map_err(|e| self.failed("it cannot be synced", e))?;
        self.at += records.len() as u64;
        let (sequence, mut contents) = (self.active.sequence, lock(&self.contents));
        for (header, at) in &self.steps {
            contents.apply(header, sequence, *at).map_err(|what| {
                let file = self.disk.path(&segment::name(sequence));
                LogError::Damaged { file, at: *at, what }
            })?;
        }
        Ok(())
    }

    /// Changes the hard state; it is durable when this returns.
    pub(super) fn save(&mut self, change: impl FnOnce(&mut HardState)) -> Result<(), LogError> {
        let mut state = *self.hard_state.state();
        change(&mut state);
        // It is written anyway, and the more it vouches for the better.
        state.durable_end = Position { sequence: self.active.sequence, at: self.at };
        self.hard_state.save(state).map_err(|source| LogError::Io {
            file: self.disk.path(hard_state::FILE),
            what: "it cannot be written",
            source,
        })
    }

    /// Goes on in a new segment with room for `bytes`.
    fn begin_segment(&mut self, bytes: u64) -> Result<(), LogError> {
        let head = Head {
            node: self.hard_state.state().node,
            sequence: self.active.sequence + 1,
            previous_end: self.at,
            size: self.segment_bytes.max(HEAD + bytes),
            ids: lock(&self.contents).ids,
        };
        let mut spare = self.spare.take();
        let mut create = || {
            if head.size != self.segment_bytes && spare.take().is_some() {
                self.disk.remove(SPARE)?;
            }
            create_segment(&*self.disk, spare.take(), &head)
        };
        let segment = create().map_err(|source| LogError::Io {
            file: self.disk.path(&segment::name(head.sequence)),
            what: "the next segment of the log cannot be created",
            source,
        })?;
        let segment = Arc::new(segment);
        lock(&self.contents).segments.insert(head.sequence, Arc::clone(&segment));
        (self.active, self.at) = (segment, HEAD);
        self.save(|_| {})?;
        self.reserve_spare();
        Ok(())
    }

    /// Returns `true` if the space of the next segment is reserved.
    pub(super) fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Reserves the space of the next segment, if that was not possible a while ago.
    pub(super) fn retry_spare(&mut self) {
        if self.spare.is_none() && self.spare_tried.elapsed() >= SPARE_RETRY {
            self.reserve_spare();
        }
    }

    fn reserve_spare(&mut self) {
        self.spare_tried = Instant::now();
        match self.disk.create(SPARE, self.segment_bytes) {
            Ok(spare) => self.spare = Some(spare),
            Err(error) => {
                let (folder, bytes) = (self.folder(), self.segment_bytes);
                tracing::warn!(
                    folder = %folder.display(), bytes, %error,
                    "no space can be reserved for the next segment of the log"
                );
            }
        }
    }

    /// Returns `true` if purging entries up to `index` leaves a segment without any.
    pub(super) fn frees(&self, index: u64) -> bool {
        let contents = lock(&self.contents);
        let oldest = contents.segments.keys().next();
        oldest.is_some_and(|oldest| self.is_free(&contents, *oldest, Some(index)))
    }

    fn is_free(&self, contents: &Contents, sequence: u64, purged: Option<u64>) -> bool {
        let highest = contents.highest.get(&sequence).copied();
        sequence != self.active.sequence && highest <= purged
    }

    /// Removes the segments whose entries are all purged, the oldest first, so that those left
    /// are always without gaps.
    pub(super) fn remove_free_segments(&mut self) {
        loop {
            let contents = lock(&self.contents);
            let purged = contents.ids.purged.map(|purged| purged.index);
            let oldest = contents.segments.keys().next().copied();
            let Some(oldest) = oldest.filter(|oldest| self.is_free(&contents, *oldest, purged))
            else {
                return;
            };
            drop(contents);
            let name = segment::name(oldest);
            if let Err(error) = self.disk.remove(&name).and_then(|()| self.disk.sync_names()) {
                let file = self.disk.path(&name);
                tracing::warn!(
                    file = %file.display(), %error,
                    "an old segment of the log cannot be removed; the next purge tries again"
                );
                return;
            }
            // Who reads it still has it open.
            let mut contents = lock(&self.contents);
            contents.segments.remove(&oldest);
            contents.highest.remove(&oldest);
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> LogError {
        LogError::Io { file: self.disk.path(&segment::name(self.active.sequence)), what, source }
    }
}
