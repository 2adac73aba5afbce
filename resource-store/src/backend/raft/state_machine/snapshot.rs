//! Snapshots as they are sent and stored: in parts of bounded size.
//!
//! A head, then chunks of resources, those of the restore under way, and an
//! end that counts them. Within a chunk each resource is framed by its length
//! and checksum: four bytes each, little end first, then the encoded resource.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message as _;

use crate::{
    backend::{
        raft::types::{
            Contents,
            proto::{self, Malformed},
        },
        store::held::Encoded,
    },
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, snapshot_part::Part},
    },
};

/// Approximate bytes of resources that are sent at a time.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;
/// No resource is larger; a frame that says so is broken.
const MOST_RESOURCE_BYTES: usize = 256 << 20;
const HEAD: usize = 8;

/// A frame that is no part of a snapshot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BadFrame {
    #[error("a resource of {0} bytes")]
    TooLong(usize),
    #[error("a resource with another checksum")]
    Checksum,
    #[error("no resource: {0}")]
    NoResource(#[from] prost::DecodeError),
}

/// Appends a framed resource.
pub(crate) fn frame(resource: &Encoded, into: &mut BytesMut) {
    let encoded = resource.bytes();
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&length.to_le_bytes());
    // TLS and TCP check the way, but not the memory and the disk at both ends.
    into.extend_from_slice(&crc32fast::hash(encoded).to_le_bytes());
    into.extend_from_slice(encoded);
}

/// A stream that is no snapshot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BadSnapshot {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the snapshot has {0}")]
    Frame(#[from] BadFrame),
    #[error("resources are missing")]
    Incomplete,
}

/// The head of a snapshot that goes to nobody yet.
pub(crate) fn head(contents: &Contents) -> peer::SnapshotHead {
    peer::SnapshotHead {
        route: None,
        vote: None,
        last: contents.applied.as_ref().map(proto::from_log_id),
        membership: Some(proto::from_stored_membership(&contents.membership)),
        version_offset: contents.version_offset,
        restore: Some(contents.restore),
    }
}

/// The parts of a snapshot.
pub(crate) fn parts(
    head: peer::SnapshotHead,
    contents: &Contents,
) -> impl Iterator<Item = peer::SnapshotPart> + Send + use<> {
    let mut shown = contents.resources.held();
    let mut restoring = contents.restoring.held();
    let mut sent = peer::SnapshotEnd::default();
    let mut ended = false;
    let rest = std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let chunk = next_chunk(&mut shown, &mut sent.resources);
        if !chunk.is_empty() {
            return Some(Part::Chunk(chunk));
        }
        let chunk = next_chunk(&mut restoring, &mut sent.restoring);
        if !chunk.is_empty() {
            return Some(Part::Restoring(chunk));
        }
        ended = true;
        Some(Part::End(sent))
    });
    std::iter::once(Part::Head(head))
        .chain(rest)
        .map(|part| peer::SnapshotPart { part: Some(part) })
}

/// The next framed resources; empty at the end.
fn next_chunk(resources: &mut impl Iterator<Item = Encoded>, count: &mut u64) -> Bytes {
    let mut chunk = BytesMut::new();
    while chunk.len() < CHUNK_BYTES
        && let Some(resource) = resources.next()
    {
        frame(&resource, &mut chunk);
        *count += 1;
    }
    chunk.freeze()
}

/// Puts a snapshot together from its parts.
#[derive(Debug)]
pub(crate) struct Assembly {
    contents: Contents,
    shown: Frames,
    restoring: Frames,
    came: peer::SnapshotEnd,
}

impl Assembly {
    /// Begins with the head of a snapshot.
    pub(crate) fn new(head: peer::SnapshotHead) -> Result<Self, Malformed> {
        let contents = Contents {
            applied: proto::optional_log_id(head.last)?,
            membership: proto::stored_membership(head.membership)?,
            version_offset: head.version_offset,
            restore: head.restore.unwrap_or_default(),
            ..Contents::default()
        };
        let (shown, restoring) = (Frames::default(), Frames::default());
        Ok(Self { contents, shown, restoring, came: peer::SnapshotEnd::default() })
    }

    /// Takes another part; gives the contents once the last one came.
    pub(crate) fn take(
        &mut self,
        part: peer::SnapshotPart,
    ) -> Result<Option<Contents>, BadSnapshot> {
        let (frames, state, count, chunk) = match part.part {
            Some(Part::Chunk(chunk)) => {
                let came = &mut self.came.resources;
                (&mut self.shown, &mut self.contents.resources, came, chunk)
            }
            Some(Part::Restoring(chunk)) => {
                let came = &mut self.came.restoring;
                (&mut self.restoring, &mut self.contents.restoring, came, chunk)
            }
            Some(Part::End(end)) => {
                // Without the count a stream that was cut between two chunks would pass for a whole one.
                if end != self.came || self.shown.is_cut() || self.restoring.is_cut() {
                    return Err(BadSnapshot::Incomplete);
                }
                let mut contents = std::mem::take(&mut self.contents);
                let last = contents.applied.map_or(0, |last| last.index);
                contents.resources.set_index(last.saturating_add(contents.version_offset));
                return Ok(Some(contents));
            }
            Some(Part::Head(_)) => return Err(Malformed("a second head").into()),
            None => return Err(Malformed("a part without content").into()),
        };
        for resource in frames.push(&chunk)? {
            // What is inserted just came, so nothing else can be wrong with it.
            let inserted = state.insert_restored(&resource);
            inserted.map_err(|_no_id| Malformed("a resource without id"))?;
            *count += 1;
        }
        Ok(None)
    }
}

/// Takes framed resources apart, wherever the chunks were cut.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    rest: BytesMut,
}

impl Frames {
    /// Takes another chunk; gives the resources that are complete.
    pub(crate) fn push(&mut self, chunk: &Bytes) -> Result<Vec<Arc<Resource>>, BadFrame> {
        self.rest.extend_from_slice(chunk);
        let mut found = Vec::new();
        while let Some(&[a, b, c, d, e, f, g, h]) = self.rest.first_chunk::<HEAD>() {
            let length = u32::from_le_bytes([a, b, c, d]);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            // Before room is made for it: a damaged length would ask for up to 4 GiB.
            if length > MOST_RESOURCE_BYTES {
                return Err(BadFrame::TooLong(length));
            }
            if self.rest.len() < HEAD + length {
                break;
            }
            self.rest.advance(HEAD);
            let encoded = self.rest.split_to(length);
            if crc32fast::hash(&encoded) != u32::from_le_bytes([e, f, g, h]) {
                return Err(BadFrame::Checksum);
            }
            found.push(Arc::new(Resource::decode(encoded)?));
        }
        Ok(found)
    }

    /// Returns `true` if a resource is cut off.
    pub(crate) fn is_cut(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::store::held::Held as _, demo};

    #[test]
    fn frames_are_found_wherever_chunks_are_cut() {
        let resources = ["korn", "nina"].map(|name| Arc::new(demo::artist(name).encode()));
        let mut framed = BytesMut::new();
        for resource in &resources {
            frame(&Encoded::hold(resource), &mut framed);
        }
        for cut in 0..framed.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for part in [&framed[..cut], &framed[cut..]] {
                found.extend(frames.push(&Bytes::copy_from_slice(part)).unwrap());
            }
            assert!(!frames.is_cut());
            assert_eq!(found.len(), 2);
            assert!(found.iter().zip(&resources).all(|(found, sent)| found == sent));
        }
        let mut frames = Frames::default();
        frames.push(&Bytes::copy_from_slice(&framed[..framed.len() - 1])).unwrap();
        assert!(frames.is_cut());
    }

    #[test]
    fn broken_frames_are_refused() {
        let mut framed = BytesMut::new();
        frame(&Encoded::hold(&Arc::new(demo::artist("korn").encode())), &mut framed);
        for bit in HEAD * 8..framed.len() * 8 {
            let mut flipped = framed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let pushed = Frames::default().push(&flipped.into());
            assert_eq!(pushed.unwrap_err(), BadFrame::Checksum);
        }
        let huge = Bytes::from(vec![0xff; HEAD]);
        assert!(matches!(Frames::default().push(&huge), Err(BadFrame::TooLong(_))));
    }
}
