//! The format of one record.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC32C of the node's id, the segment's sequence number, the record's offset, and bytes 4..48 |
//! | 4..8 | kind |
//! | 8..12 | length of the payload |
//! | 12..16 | CRC32C of the payload |
//! | 16..24 | index of the entry |
//! | 24..32 | term |
//! | 32..40 | id of the leader of that term |
//! | 40..48 | durable end: the segment was synced up to this offset before this record was written |
//! | 48.. | payload, and 1 to 8 bytes of `0xFF` up to a multiple of 8 |
//!
//! Numbers are little-endian. The checksum of the header covers the place of the record, so a
//! record is valid nowhere else. A record ends with a byte that is not zero, so the last sector
//! of one that was written is never all zeros. The durable end proves, for a record that is
//! valid, that those before it were not torn by a crash.

use bytes::Bytes;
use openraft::EntryPayload;
use prost::Message as _;

use crate::{
    backend::raft::types::{Content, Entry, LogId, NodeId, Proposal, proto},
    pb::generated::resource_store::peer::v1 as peer,
};

/// Size of the header of a record.
pub(super) const HEADER: usize = 48;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;
/// Byte that fills a record up.
const PADDING: u8 = 0xff;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An entry without content.
    Blank,
    /// An entry with a write or delete.
    Change,
    /// An entry with a step of a restore.
    Restore,
    /// An entry with a membership.
    Membership,
    /// Entries from `index` on are gone; term and leader are those of the entry before it.
    Truncate,
    /// Entries up to this one are gone, because a snapshot holds them.
    Purge,
    /// Entries up to this one are committed.
    Committed,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Blank,
        Self::Change,
        Self::Restore,
        Self::Membership,
        Self::Truncate,
        Self::Purge,
        Self::Committed,
    ];

    fn number(self) -> u32 {
        // 0 is what space reads as that was never written.
        Self::ALL.iter().zip(1..).find(|(kind, _)| **kind == self).map_or(0, |(_, number)| number)
    }

    fn from_number(number: u32) -> Option<Self> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        Self::ALL.get(place).copied()
    }
}

/// The header of a record, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Length of the payload.
    pub(super) length: u32,
    payload_crc: u32,
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) leader: NodeId,
    pub(super) durable_end: u64,
}

impl Header {
    /// Reads a header; `None` if it is not one that was written at this place.
    pub(super) fn read(bytes: &[u8], seed: Seed, at: u64) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<HEADER>()?;
        let (crc, content) = header.split_first_chunk::<4>()?;
        // Most places of a file begin no record; this is cheaper than a checksum.
        let kind = Kind::from_number(u32_at(content)?)?;
        if u32::from_le_bytes(*crc) != seed.checksum(at, content) {
            return None;
        }
        let mut numbers = content.get(4..)?;
        Some(Self {
            kind,
            length: take_u32(&mut numbers)?,
            payload_crc: take_u32(&mut numbers)?,
            index: take_u64(&mut numbers)?,
            term: take_u64(&mut numbers)?,
            leader: take_u64(&mut numbers)?,
            durable_end: take_u64(&mut numbers)?,
        })
    }

    pub(super) fn log_id(&self) -> LogId {
        log_id(self.term, self.leader, self.index)
    }

    /// Size of the whole record.
    pub(super) fn record_size(&self) -> usize {
        record_size(usize::try_from(self.length).unwrap_or(usize::MAX))
    }

    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        crc32c::crc32c(payload) == self.payload_crc
    }

    /// Returns the entry of this record, or why it is none.
    pub(super) fn entry(&self, payload: Bytes) -> Result<Entry, String> {
        let payload = match self.kind {
            Kind::Blank => EntryPayload::Blank,
            Kind::Change => EntryPayload::Normal(Proposal::new(Content::Log(payload))),
            Kind::Restore => EntryPayload::Normal(Proposal::new(Content::Restore(payload))),
            Kind::Membership => {
                let message = peer::Membership::decode(payload);
                let message = message.map_err(|e| format!("it holds no membership: {e}"))?;
                EntryPayload::Membership(proto::membership(message).map_err(|e| e.to_string())?)
            }
            Kind::Truncate | Kind::Purge | Kind::Committed => {
                return Err("it holds no entry".to_owned());
            }
        };
        Ok(Entry { log_id: self.log_id(), payload })
    }
}

/// Start value of the checksums of one segment: they are wrong in any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed(u32);

impl Seed {
    pub(super) fn new(node: NodeId, sequence: u64) -> Self {
        Self(crc32c::crc32c_append(crc32c::crc32c(&node.to_le_bytes()), &sequence.to_le_bytes()))
    }

    pub(super) fn checksum(self, at: u64, content: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &at.to_le_bytes()), content)
    }
}

pub(super) fn log_id(term: u64, leader: NodeId, index: u64) -> LogId {
    LogId::new(openraft::CommittedLeaderId::new(term, leader), index)
}

/// Size of a record with a payload of so many bytes.
pub(super) fn record_size(payload: usize) -> usize {
    HEADER.saturating_add(payload).saturating_add(ALIGNMENT - payload % ALIGNMENT)
}

/// Appends records of entries to a buffer. [`seal`] makes them valid at their place.
pub(super) fn put_entry(buffer: &mut Vec<u8>, entry: &Entry) {
    let id = &entry.log_id;
    match &entry.payload {
        EntryPayload::Blank => put(buffer, Kind::Blank, id, &[]),
        EntryPayload::Normal(proposal) => match &proposal.content {
            Content::Log(bytes) => put(buffer, Kind::Change, id, bytes),
            Content::Restore(bytes) => put(buffer, Kind::Restore, id, bytes),
        },
        EntryPayload::Membership(membership) => {
            let message = proto::from_membership(membership).encode_to_vec();
            put(buffer, Kind::Membership, id, &message);
        }
    }
}

/// Appends a record without payload.
pub(super) fn put_mark(buffer: &mut Vec<u8>, kind: Kind, id: &LogId) {
    put(buffer, kind, id, &[]);
}

/// Appends the record that entries from `since` on are gone.
pub(super) fn put_truncate(buffer: &mut Vec<u8>, since: u64, last: Option<&LogId>) {
    let id = last.map_or(log_id(0, 0, since), |last| {
        log_id(last.leader_id.term, last.leader_id.node_id, since)
    });
    put(buffer, Kind::Truncate, &id, &[]);
}

/// Appends a record whose checksum and durable end are still to come. The costly part, the
/// checksum of the payload, does not depend on the place, so the caller's thread does it.
fn put(buffer: &mut Vec<u8>, kind: Kind, id: &LogId, payload: &[u8]) {
    let size = record_size(payload.len());
    buffer.reserve(size);
    // Payloads are bounded by the largest resource, and a longer one would not be acknowledged:
    // its checksum is wrong.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let end = buffer.len().saturating_add(size);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&kind.number().to_le_bytes());
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    buffer.extend_from_slice(&id.index.to_le_bytes());
    buffer.extend_from_slice(&id.leader_id.term.to_le_bytes());
    buffer.extend_from_slice(&id.leader_id.node_id.to_le_bytes());
    buffer.extend_from_slice(&[0; 8]);
    buffer.extend_from_slice(payload);
    buffer.resize(end, PADDING);
}

/// Makes all records of a buffer valid at `at`, where everything before was synced up to there,
/// and gives each header with its offset to `each`.
pub(super) fn seal(buffer: &mut [u8], seed: Seed, at: u64, mut each: impl FnMut(Header, u64)) {
    let (mut rest, mut place) = (buffer, at);
    while let Some((header, _)) = rest.split_first_chunk_mut::<HEADER>() {
        if let Some(durable_end) = header.last_chunk_mut::<8>() {
            *durable_end = at.to_le_bytes();
        }
        if let Some((crc, content)) = header.split_first_chunk_mut::<4>() {
            *crc = seed.checksum(place, content).to_le_bytes();
        }
        let Some(sealed) = Header::read(header, seed, place) else { return };
        each(sealed, place);
        let size = sealed.record_size();
        place += size as u64;
        rest = rest.get_mut(size..).unwrap_or_default();
    }
}

fn u32_at(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Takes a number off the front.
pub(super) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

/// Takes a number off the front.
pub(super) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}
