//! One segment of the log: a file of fixed size with a head and records, and zeros after them.
//!
//! The head says which log the segment belongs to, where the segment before it ends, and what the
//! log was when the segment began; so the segments before it can go once their entries are purged.

use std::{io, sync::Arc};

use super::{
    disk::{Disk, DiskFile},
    error::LogError,
    record::{ALIGNMENT, HEADER, Header, Seed, log_id, take_u32, take_u64},
};
use crate::backend::raft::types::{LogId, NodeId};

/// Size of the head, and offset of the first record.
pub(super) const HEAD: u64 = 512;
/// Bytes that a disk writes as a whole or not at all.
const SECTOR: u64 = 512;
/// Bytes that are read at once.
const WINDOW: usize = 1 << 20;
/// Zeros to compare with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

const MAGIC: u32 = 0x7261_666c;
const FORMAT: u32 = 1;
const SUFFIX: &str = ".wal";
/// Name of the file that becomes the next segment. Its space is reserved already, so that the
/// log has room for the entries of an election and a change of membership when the disk is full.
pub(super) const SPARE: &str = "spare.new";

/// Returns the name of a segment's file.
pub(super) fn name(sequence: u64) -> String {
    format!("{sequence:016x}{SUFFIX}")
}

/// Returns the sequence number in the name of a segment's file.
pub(super) fn sequence(file: &str) -> Option<u64> {
    let number = file.strip_suffix(SUFFIX)?;
    let sequence = u64::from_str_radix(number, 16).ok()?;
    (name(sequence) == file).then_some(sequence)
}

/// Ids that describe a log without its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ids {
    /// The last entry, or the last purged one if none is left.
    pub(super) last: Option<LogId>,
    pub(super) purged: Option<LogId>,
    pub(super) committed: Option<LogId>,
}

impl Ids {
    /// Returns the index that the next entry has to have.
    pub(super) fn next_index(&self) -> u64 {
        self.last.map_or(0, |last| last.index + 1)
    }
}

/// Head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) node: NodeId,
    pub(super) sequence: u64,
    /// End of the records in the segment before; 0 in the first segment.
    pub(super) previous_end: u64,
    /// Size of the file.
    pub(super) size: u64,
    /// The log when the segment began.
    pub(super) ids: Ids,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut head = Vec::new();
        for number in [MAGIC, FORMAT] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let numbers = [self.node, self.sequence, self.previous_end, self.size];
        let ids = [self.ids.last, self.ids.purged, self.ids.committed].map(|id| {
            let numbers = |id: LogId| [1, id.leader_id.term, id.leader_id.node_id, id.index];
            id.map_or([0; 4], numbers)
        });
        for number in numbers.into_iter().chain(ids.into_iter().flatten()) {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        head.resize(usize::try_from(HEAD).unwrap_or_default(), 0);
        head
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        const CONTENT: usize = 8 + 16 * 8;
        let short = || "it has no head".to_owned();
        let (mut content, mut crc) = bytes.split_at_checked(CONTENT).ok_or_else(short)?;
        let computed = crc32c::crc32c(content);
        let found = take_u32(&mut crc).ok_or_else(short)?;
        if found != computed {
            return Err(format!(
                "the checksum of its head is {found:08x}, but its content gives {computed:08x}"
            ));
        }
        let (magic, format) = (take_u32(&mut content), take_u32(&mut content));
        if magic != Some(MAGIC) || format != Some(FORMAT) {
            return Err(format!(
                "its format is {}, and this version knows format {FORMAT} only",
                format.unwrap_or_default()
            ));
        }
        let mut number = || take_u64(&mut content).ok_or_else(short);
        let (node, sequence, previous_end, size) = (number()?, number()?, number()?, number()?);
        let mut id = || -> Result<Option<LogId>, String> {
            let (there, term, leader, index) = (number()?, number()?, number()?, number()?);
            Ok((there != 0).then(|| log_id(term, leader, index)))
        };
        let ids = Ids { last: id()?, purged: id()?, committed: id()? };
        Ok(Self { node, sequence, previous_end, size, ids })
    }
}

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) sequence: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) seed: Seed,
    /// Size of the file.
    pub(super) size: u64,
}

impl Segment {
    pub(super) fn new(head: &Head, file: Arc<dyn DiskFile>) -> Self {
        let seed = Seed::new(head.node, head.sequence);
        Self { sequence: head.sequence, file, seed, size: head.size }
    }

    /// Opens the segment with a sequence number, and checks its head.
    pub(super) fn open(
        disk: &dyn Disk,
        node: NodeId,
        sequence: u64,
    ) -> Result<(Head, Self), LogError> {
        let path = disk.path(&name(sequence));
        let failed = |what| {
            let file = path.clone();
            move |source| LogError::Io { file, what, source }
        };
        let damaged = |what: String| LogError::Damaged { file: path.clone(), at: 0, what };
        let file = disk.open(&name(sequence)).map_err(failed("it cannot be opened"))?;
        let size = file.size().map_err(failed("its size cannot be read"))?;
        if size < HEAD {
            return Err(damaged(format!("it has {size} bytes, which is less than its head")));
        }
        let mut head = vec![0; usize::try_from(HEAD).unwrap_or_default()];
        file.read_at(&mut head, 0).map_err(failed("its head cannot be read"))?;
        let head = Head::decode(&head).map_err(damaged)?;
        if (head.node, head.sequence) != (node, sequence) {
            return Err(damaged(format!(
                "it is segment {:x} of node {:016x}, and segment {sequence:x} of node {node:016x} \
                 has to be here",
                head.sequence, head.node
            )));
        }
        if size < head.size {
            return Err(damaged(format!(
                "it has {size} bytes, and {} when it was made: it was cut off",
                head.size
            )));
        }
        let segment = Self::new(&head, file);
        Ok((head, segment))
    }
}

/// Creates a segment, complete or not at all.
pub(super) fn create_segment(
    disk: &dyn Disk,
    spare: Option<Arc<dyn DiskFile>>,
    head: &Head,
) -> io::Result<Segment> {
    let file = match spare {
        Some(spare) => spare,
        None => disk.create(SPARE, head.size)?,
    };
    // Under another name until it is on the disk: a crash leaves a whole segment or none.
    file.write_at(&head.encode(), 0)?;
    file.sync()?;
    disk.rename(SPARE, &name(head.sequence))?;
    // A crash could forget the new name, and with it entries that were acknowledged.
    disk.sync_names()?;
    Ok(Segment::new(head, file))
}

/// End of the valid records of a segment.
#[derive(Debug)]
pub(super) struct ScanEnd {
    /// Offset after the last valid record.
    pub(super) at: u64,
    /// Durable end in the last valid record: the offset where its write began.
    pub(super) last_write: u64,
    /// Why no valid record begins here.
    pub(super) why: String,
    /// Size of the record here, if its header is valid and its payload is not.
    bad_payload: Option<usize>,
}

/// Reads the records of a segment one after the other.
#[derive(Debug)]
pub(super) struct Scanner<'s> {
    segment: &'s Segment,
    /// Offset of `buffer` in the file.
    start: u64,
    buffer: Vec<u8>,
}

impl<'s> Scanner<'s> {
    pub(super) fn new(segment: &'s Segment) -> Self {
        Self { segment, start: 0, buffer: Vec::new() }
    }

    /// Returns bytes of the file; fewer than `count` only at its end.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let offset = |start: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let there =
            at >= self.start && offset(self.start).saturating_add(count) <= self.buffer.len();
        if !there {
            let left = self.segment.size.saturating_sub(at);
            let size = count.max(WINDOW).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buffer.resize(size, 0);
            self.start = at;
            self.segment.file.read_at(&mut self.buffer, at)?;
        }
        let from = self.buffer.get(offset(self.start)..).unwrap_or_default();
        Ok(from.get(..count).unwrap_or(from))
    }

    /// Gives each valid record from the first on to `each`, which may refuse it.
    pub(super) fn records(
        &mut self,
        mut each: impl FnMut(&Header, u64) -> Result<(), String>,
    ) -> io::Result<Result<ScanEnd, (u64, String)>> {
        let mut end = ScanEnd { at: HEAD, last_write: HEAD, why: String::new(), bad_payload: None };
        loop {
            let seed = self.segment.seed;
            let header = Header::read(self.bytes(end.at, HEADER)?, seed, end.at);
            let Some(header) = header else {
                "no valid record begins here".clone_into(&mut end.why);
                return Ok(Ok(end));
            };
            let size = header.record_size();
            let payload = self.bytes(end.at, size)?.get(HEADER..).unwrap_or_default();
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            if !payload.get(..length).is_some_and(|payload| header.fits(payload)) {
                end.why = format!("the checksum of record {:?} is wrong", header.kind);
                end.bad_payload = Some(size);
                return Ok(Ok(end));
            }
            if let Err(refused) = each(&header, end.at) {
                return Ok(Err((end.at, refused)));
            }
            end.at += size as u64;
            end.last_write = header.durable_end;
        }
    }

    /// Judges what follows the last valid record of the last segment, where all before `durable`
    /// was synced: returns the end of a torn write, which is to be cut off, `None` if there is
    /// nothing, or why it is damage.
    ///
    /// A write that a crash tore lacks whole sectors, which are zeros still, and nothing was
    /// written after it.
    pub(super) fn torn_end(
        &mut self,
        end: &ScanEnd,
        durable: u64,
    ) -> io::Result<Result<Option<u64>, String>> {
        if end.at < durable {
            return Ok(Err(format!(
                "{}, but the log was on the disk up to offset {durable}",
                end.why
            )));
        }
        let Some(data_end) = self.data_end(end.at)? else { return Ok(Ok(None)) };
        let (seed, step) = (self.segment.seed, ALIGNMENT as u64);
        let mut at = end.at + step;
        // A later record that counts this place as synced proves that it was written whole: what
        // is there now is damage.
        while at < data_end {
            let header = Header::read(self.bytes(at, HEADER)?, seed, at);
            if header.is_some_and(|header| header.durable_end > end.at) {
                return Ok(Err(format!(
                    "{}, but the record at offset {at} was written once it was on the disk",
                    end.why
                )));
            }
            at += step;
        }
        // If the write was torn, the first record that is not valid lacks a sector.
        let size = end.bad_payload.unwrap_or(HEADER) as u64;
        let mut from = end.at;
        while from < end.at + size && from < self.segment.size {
            let to = (from / SECTOR + 1) * SECTOR;
            let count = usize::try_from(to - from).unwrap_or_default();
            if is_zero(self.bytes(from, count)?) {
                return Ok(Ok(Some(data_end)));
            }
            from = to;
        }
        Ok(Err(format!("{}, and no sector of it is missing", end.why)))
    }

    /// Returns the offset after the last byte from `at` on that is not zero.
    fn data_end(&mut self, at: u64) -> io::Result<Option<u64>> {
        let (mut from, mut end) = (at, None);
        while from < self.segment.size {
            let bytes = self.bytes(from, ZEROS.len())?;
            if !is_zero(bytes) {
                let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                end = Some(from + last as u64 + 1);
            }
            from += ZEROS.len() as u64;
        }
        Ok(end)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    ZEROS.get(..bytes.len()).is_some_and(|zeros| zeros == bytes)
}
