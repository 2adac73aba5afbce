//! The file of the hard state: which node this is, its vote, and how far the log was synced.
//!
//! The file has two copies of the state, a page each. A change is written to the first and
//! synced, then to the second and synced, and only then acknowledged. So a crash tears at most
//! one copy, and what is in the other was acknowledged last; and a copy that decays later is
//! made again from the other. Only if both are damaged the log does not open. The file never
//! grows, so a node whose disk is full can still vote.

use std::{io, sync::Arc};

use super::{
    disk::{Disk, DiskFile},
    error::LogError,
    record::{take_u32, take_u64},
};
use crate::backend::raft::types::{NodeId, Vote};

/// Name of the file.
pub(super) const FILE: &str = "hard-state";
pub(super) const NEW_FILE: &str = "hard-state.new";
/// Distance of the two copies; no page and no sector holds parts of both.
const COPY_DISTANCE: u64 = 4096;
/// Size of one copy.
const COPY_SIZE: usize = 128;
const MAGIC: u32 = 0x7261_6673;
const FORMAT: u32 = 1;

/// Place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    /// Sequence number of the segment.
    pub(super) sequence: u64,
    /// Offset in it.
    pub(super) at: u64,
}

/// State of a node that changes seldom and is never lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HardState {
    pub(super) node: NodeId,
    /// 0 if the node belongs to no cluster yet.
    pub(super) cluster: u64,
    /// `true` once the node was a member that votes.
    pub(super) entered: bool,
    pub(super) vote: Option<Vote>,
    /// All of the log before this was synced; records that end later may be torn.
    pub(super) durable_end: Position,
}

/// The open file.
#[derive(Debug)]
pub(super) struct HardStateFile {
    file: Arc<dyn DiskFile>,
    generation: u64,
    state: HardState,
}

impl HardStateFile {
    /// Creates the file, complete or not at all.
    pub(super) fn create(disk: &dyn Disk, state: HardState) -> Result<Self, LogError> {
        let create = || {
            let file = disk.create(NEW_FILE, COPY_DISTANCE * 2)?;
            let created = Self { file, generation: 1, state };
            created.write_copies()?;
            disk.rename(NEW_FILE, FILE)?;
            disk.sync_names()?;
            Ok(created)
        };
        let failed =
            |source| LogError::Io { file: disk.path(FILE), what: "it cannot be created", source };
        create().map_err(failed)
    }

    /// Opens the file, and makes a copy again that is older than the other or damaged.
    pub(super) fn open(disk: &dyn Disk) -> Result<Self, LogError> {
        let failed = |what| move |source| LogError::Io { file: disk.path(FILE), what, source };
        let file = disk.open(FILE).map_err(failed("it cannot be opened"))?;
        let read = |at| {
            let mut copy = [0; COPY_SIZE];
            // A file that was cut short has fewer copies.
            match file.read_at(&mut copy, at) {
                Ok(()) => Ok(decode(&copy)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Ok(Err("the file ends before it".to_owned()))
                }
                Err(error) => Err(error),
            }
        };
        let first = read(0).map_err(failed("it cannot be read"))?;
        let second = read(COPY_DISTANCE).map_err(failed("it cannot be read"))?;
        let ((generation, state), both) = match (&first, &second) {
            (Ok(first), Ok(second)) if first.0 >= second.0 => (*first, first == second),
            (_, Ok(second)) => (*second, false),
            (Ok(first), Err(_)) => (*first, false),
            (Err(first), Err(second)) => {
                let what = format!("neither copy can be used: {first}; {second}");
                return Err(LogError::Damaged { file: disk.path(FILE), at: 0, what });
            }
        };
        for (at, copy) in [(0, &first), (COPY_DISTANCE, &second)] {
            if let Err(damage) = copy {
                let file = disk.path(FILE);
                tracing::warn!(
                    file = %file.display(), offset = at, bytes = COPY_SIZE, damage,
                    "a copy of the vote is damaged and is made again from the other"
                );
            }
        }
        let opened = Self { file, generation, state };
        if !both {
            opened.write_copies().map_err(failed("it cannot be written"))?;
        }
        Ok(opened)
    }

    pub(super) fn state(&self) -> &HardState {
        &self.state
    }

    /// Changes the state; it is durable when this returns.
    pub(super) fn save(&mut self, state: HardState) -> io::Result<()> {
        self.generation += 1;
        self.state = state;
        self.write_copies()
    }

    fn write_copies(&self) -> io::Result<()> {
        let copy = encode(self.generation, &self.state);
        for at in [0, COPY_DISTANCE] {
            // The other copy is whole while this one may be torn.
            self.file.write_at(&copy, at)?;
            self.file.sync()?;
        }
        Ok(())
    }
}

fn encode(generation: u64, state: &HardState) -> Vec<u8> {
    let mut content = Vec::with_capacity(COPY_SIZE);
    let (has_vote, committed) = state.vote.map_or((0, 0), |vote| (1, u32::from(vote.committed)));
    let vote = state.vote.unwrap_or_default().leader_id;
    for number in [MAGIC, FORMAT, u32::from(state.entered), has_vote, committed] {
        content.extend_from_slice(&number.to_le_bytes());
    }
    let position = state.durable_end;
    let numbers = [
        generation,
        state.node,
        state.cluster,
        vote.term,
        vote.node_id,
        position.sequence,
        position.at,
    ];
    for number in numbers {
        content.extend_from_slice(&number.to_le_bytes());
    }
    content.resize(COPY_SIZE - 4, 0);
    content.extend_from_slice(&crc32c::crc32c(&content).to_le_bytes());
    content
}

fn decode(copy: &[u8; COPY_SIZE]) -> Result<(u64, HardState), String> {
    let short = || "it is too short".to_owned();
    let (mut content, crc) = copy.split_last_chunk::<4>().ok_or_else(short)?;
    let (found, computed) = (u32::from_le_bytes(*crc), crc32c::crc32c(content));
    if found != computed {
        return Err(format!("its checksum is {found:08x}, but its content gives {computed:08x}"));
    }
    let content = &mut content;
    let mut word = || take_u32(content).ok_or_else(short);
    let (magic, format) = (word()?, word()?);
    let (entered, has_vote, committed) = (word()?, word()?, word()?);
    if magic != MAGIC || format != FORMAT {
        return Err(format!("its format is {format}, and this version knows format {FORMAT} only"));
    }
    let mut number = || take_u64(content).ok_or_else(short);
    let generation = number()?;
    let (node, cluster, term, voted) = (number()?, number()?, number()?, number()?);
    let durable_end = Position { sequence: number()?, at: number()? };
    let vote = (has_vote != 0).then(|| {
        if committed != 0 { Vote::new_committed(term, voted) } else { Vote::new(term, voted) }
    });
    Ok((generation, HardState { node, cluster, entered: entered != 0, vote, durable_end }))
}
