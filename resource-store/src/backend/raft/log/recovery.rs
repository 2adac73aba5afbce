//! Opening a log: reads all segments, cuts off what a crash tore, and refuses what is damaged.

use std::sync::{Arc, Mutex};

use super::{
    contents::Contents,
    disk::Disk,
    error::LogError,
    hard_state::{self, HardState, HardStateFile, Position},
    record::Header,
    segment::{self, HEAD, Head, Ids, SPARE, ScanEnd, Scanner, Segment, create_segment},
    wal::Wal,
};

/// Opens a log, or creates an empty one where there is none.
pub(super) fn open(disk: Arc<dyn Disk>, segment_bytes: u64) -> Result<Wal, LogError> {
    let (has_hard_state, mut sequences) = files(&*disk)?;
    let mut hard_state = match (has_hard_state, sequences.first()) {
        (true, _) => HardStateFile::open(&*disk)?,
        (false, None) => HardStateFile::create(&*disk, new_node())?,
        (false, Some(_)) => {
            let why = "segments of the log are there, and the vote belongs to them".to_owned();
            return Err(LogError::Missing { file: disk.path(hard_state::FILE), why });
        }
    };
    let state = *hard_state.state();
    if sequences.is_empty() && state.durable_end.sequence == 0 {
        // A crash may have ended the creation between these two files.
        let head = Head {
            node: state.node,
            sequence: 1,
            previous_end: 0,
            size: segment_bytes,
            ids: Ids::default(),
        };
        create_segment(&*disk, None, &head).map_err(|source| LogError::Io {
            file: disk.path(&segment::name(1)),
            what: "it cannot be created",
            source,
        })?;
        note_durable(&*disk, &mut hard_state, Position { sequence: 1, at: HEAD })?;
        sequences.push(1);
    }
    check_sequences(&*disk, &sequences, hard_state.state().durable_end.sequence)?;
    let (replay, active) = Replay::new(&*disk, hard_state.state()).run(&sequences)?;
    let Replay { contents, end, .. } = replay;
    note_durable(&*disk, &mut hard_state, end)?;
    let contents = Arc::new(Mutex::new(contents));
    Ok(Wal::new(disk, hard_state, segment_bytes, contents, active, end.at))
}

/// Returns whether there is a hard state, and the sequence numbers of segments in order; removes
/// what a crash left half done.
fn files(disk: &dyn Disk) -> Result<(bool, Vec<u64>), LogError> {
    let failed = |file: &str, what| {
        let file = disk.path(file);
        move |source| LogError::Io { file, what, source }
    };
    let names = disk.names().map_err(failed("", "it cannot be listed"))?;
    let has_hard_state = names.iter().any(|name| name == hard_state::FILE);
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| segment::sequence(name)).collect();
    sequences.sort_unstable();
    let is_temporary = |name: &&String| *name == SPARE || *name == hard_state::NEW_FILE;
    for name in names.iter().filter(is_temporary) {
        disk.remove(name).map_err(failed(name, "it cannot be removed"))?;
    }
    // A process that was killed may have created a segment whose name is not durable yet, and
    // what follows relies on the names.
    disk.sync_names().map_err(failed("", "it cannot be synced"))?;
    Ok((has_hard_state, sequences))
}

fn new_node() -> HardState {
    HardState {
        node: fastrand::u64(1..),
        cluster: 0,
        entered: false,
        vote: None,
        durable_end: Position::default(),
    }
}

fn check_sequences(disk: &dyn Disk, sequences: &[u64], newest: u64) -> Result<(), LogError> {
    let mut expected = sequences.first().copied().unwrap_or(newest);
    for sequence in sequences {
        if *sequence != expected {
            break;
        }
        expected += 1;
    }
    let last = sequences.last().copied().unwrap_or_default().max(newest);
    if expected <= last {
        let file = disk.path(&segment::name(expected));
        let why = format!("the log has segments up to {}", segment::name(last));
        return Err(LogError::Missing { file, why });
    }
    Ok(())
}

/// Saves how far the log is on the disk, so that less than that is not taken for a torn write.
fn note_durable(
    disk: &dyn Disk,
    hard_state: &mut HardStateFile,
    durable_end: Position,
) -> Result<(), LogError> {
    let state = *hard_state.state();
    if state.durable_end == durable_end {
        return Ok(());
    }
    let failed = |source| LogError::Io {
        file: disk.path(hard_state::FILE),
        what: "it cannot be written",
        source,
    };
    hard_state.save(HardState { durable_end, ..state }).map_err(failed)
}

/// The log as far as it was read.
struct Replay<'d> {
    disk: &'d dyn Disk,
    state: &'d HardState,
    contents: Contents,
    end: Position,
    active: Option<Arc<Segment>>,
}

impl<'d> Replay<'d> {
    fn new(disk: &'d dyn Disk, state: &'d HardState) -> Self {
        Self { disk, state, contents: Contents::default(), end: Position::default(), active: None }
    }

    fn run(mut self, sequences: &[u64]) -> Result<(Self, Arc<Segment>), LogError> {
        for sequence in sequences {
            let (head, segment) = Segment::open(self.disk, self.state.node, *sequence)?;
            self.follows(&head)?;
            let segment = Arc::new(segment);
            let end = self.replay(&segment)?;
            self.end = Position { sequence: *sequence, at: end.at };
            if sequences.last() == Some(sequence) {
                self.settle_tail(&segment, &end)?;
            }
            self.contents.segments.insert(*sequence, Arc::clone(&segment));
            self.active = Some(segment);
        }
        if let Some((first, last)) = self.contents.missing() {
            let file = self.disk.path(&segment::name(self.end.sequence));
            let what = format!("entries {first} to {last} are in no segment");
            return Err(LogError::Damaged { file, at: self.end.at, what });
        }
        let missing = || LogError::Missing {
            file: self.disk.path(&segment::name(1)),
            why: "the log has no segments".to_owned(),
        };
        let active = self.active.clone().ok_or_else(missing)?;
        Ok((self, active))
    }

    /// Checks that the segment before ends where this one says.
    fn follows(&mut self, head: &Head) -> Result<(), LogError> {
        if self.active.is_none() {
            self.contents = Contents::new(head.ids);
            return Ok(());
        }
        if self.end.at == head.previous_end && self.contents.ids == head.ids {
            return Ok(());
        }
        let what = format!(
            "no valid record begins here, but the log was on the disk up to offset {} when the \
             next segment began",
            head.previous_end
        );
        let file = self.disk.path(&segment::name(self.end.sequence));
        Err(LogError::Damaged { file, at: self.end.at, what })
    }

    fn replay(&mut self, segment: &Segment) -> Result<ScanEnd, LogError> {
        let sequence = segment.sequence;
        let contents = &mut self.contents;
        let each = |header: &Header, at: u64| contents.apply(header, sequence, at);
        let file = self.disk.path(&segment::name(sequence));
        match Scanner::new(segment).records(each) {
            Ok(Ok(end)) => Ok(end),
            Ok(Err((at, what))) => Err(LogError::Damaged { file, at, what }),
            Err(source) => Err(LogError::Io { file, what: "it cannot be read", source }),
        }
    }

    /// Cuts a torn write off, and brings to the disk what is not known to be there.
    fn settle_tail(&mut self, segment: &Segment, end: &ScanEnd) -> Result<(), LogError> {
        let file = self.disk.path(&segment::name(segment.sequence));
        let known = self.state.durable_end;
        let durable = if known.sequence == segment.sequence { known.at } else { HEAD };
        let failed = |what| {
            let file = file.clone();
            move |source| LogError::Io { file, what, source }
        };
        let torn = Scanner::new(segment).torn_end(end, durable);
        let torn = match torn.map_err(failed("it cannot be read"))? {
            Ok(torn) => torn,
            Err(what) => return Err(LogError::Damaged { file, at: end.at, what }),
        };
        if let Some(torn_end) = torn {
            let bytes = torn_end - end.at;
            tracing::warn!(
                file = %file.display(), offset = end.at, bytes,
                "the log ends with a write that a crash tore; it was never acknowledged and is \
                 cut off"
            );
        }
        if torn.is_none() && end.at == durable {
            return Ok(());
        }
        // After a sync that failed, the system may show bytes that it never wrote, and count them
        // as written. So the last write, which no later one vouches for, is written once more.
        let from = end.last_write.max(durable).min(end.at);
        let size = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(0);
        let mut again = vec![0; size(from, end.at)];
        segment.file.read_at(&mut again, from).map_err(failed("it cannot be read"))?;
        again.resize(again.len() + size(end.at, torn.unwrap_or(end.at)), 0);
        segment.file.write_at(&again, from).map_err(failed("it cannot be written"))?;
        segment.file.sync().map_err(failed("it cannot be synced"))
    }
}
