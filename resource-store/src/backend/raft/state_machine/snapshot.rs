//! Snapshots: what the state machine holds at one entry of the log.
//!
//! The state machine is a file already, so a snapshot that goes out is a view
//! of it, read as it is sent; what comes in is staged within the file of the
//! receiver, in the order it comes. Neither is ever in memory as a whole.
//!
//! On the way each resource is framed by its length and checksum:
//! four bytes each, little end first, then the encoded resource.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use prost::Message as _;

use crate::{
    backend::{
        ResourceStream,
        durable::table::{Place, TableSnapshot},
    },
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, snapshot_part::Part},
    },
};

/// How many bytes of resources are sent at a time, about.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;
/// No resource is larger; a frame that says so is broken.
const MOST_RESOURCE_BYTES: usize = 256 << 20;
const HEAD: usize = 8;

/// What came is no part of a snapshot.
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
pub(crate) fn frame(resource: &Resource, into: &mut BytesMut) {
    let encoded = resource.encode_to_vec();
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&crc32fast::hash(&encoded).to_le_bytes());
    into.extend_from_slice(&encoded);
}

/// The parts of a snapshot, as they are sent. The stream ends early if the view
/// cannot be read; then the receiver sees no end of the snapshot.
pub(crate) fn parts(
    head: peer::SnapshotHead,
    view: Arc<TableSnapshot>,
) -> impl Stream<Item = peer::SnapshotPart> + Send + 'static {
    let rest = stream::unfold(Some(Sending::of(view)), |sending| async move {
        let mut sending = sending?;
        let mut chunk = sending.chunk().await?;
        if chunk.is_empty() && sending.place == Place::Shown {
            sending.turn_to(Place::Restoring);
            chunk = sending.chunk().await?;
        }
        let part = match sending.place {
            _ if chunk.is_empty() => return Some((Part::End(sending.sent), None)),
            Place::Restoring => Part::Restoring(chunk),
            _ => Part::Chunk(chunk),
        };
        Some((part, Some(sending)))
    });
    stream::once(async move { Part::Head(head) })
        .chain(rest)
        .map(|part| peer::SnapshotPart { part: Some(part) })
}

/// A snapshot on its way.
struct Sending {
    view: Arc<TableSnapshot>,
    place: Place,
    resources: ResourceStream,
    sent: peer::SnapshotEnd,
}

impl Sending {
    fn of(view: Arc<TableSnapshot>) -> Self {
        let resources = Arc::clone(&view).stream(None);
        Self { view, place: Place::Shown, resources, sent: peer::SnapshotEnd::default() }
    }

    fn turn_to(&mut self, place: Place) {
        self.place = place;
        self.resources = Arc::clone(&self.view).stream_of(place, None);
    }

    /// The next framed resources; empty at the end, and none if the view cannot
    /// be read.
    async fn chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_BYTES {
            match self.resources.next().await {
                Some(Ok(resource)) => frame(&resource, &mut chunk),
                Some(Err(error)) => {
                    tracing::error!(%error, "a snapshot cannot be read");
                    return None;
                }
                None => break,
            }
            if self.place == Place::Restoring {
                self.sent.restoring += 1;
            } else {
                self.sent.resources += 1;
            }
        }
        Some(chunk.freeze())
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

    /// Whether a resource is cut off.
    pub(crate) fn is_cut(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn frames_are_found_wherever_chunks_are_cut() {
        let resources = [demo::artist("korn").encode(), demo::artist("nina").encode()];
        let mut framed = BytesMut::new();
        for resource in &resources {
            frame(resource, &mut framed);
        }
        for cut in 0..framed.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for part in [&framed[..cut], &framed[cut..]] {
                found.extend(frames.push(&Bytes::copy_from_slice(part)).unwrap());
            }
            assert!(!frames.is_cut());
            assert_eq!(found.len(), 2);
            assert!(found.iter().zip(&resources).all(|(found, sent)| **found == *sent));
        }
        let mut frames = Frames::default();
        frames.push(&Bytes::copy_from_slice(&framed[..framed.len() - 1])).unwrap();
        assert!(frames.is_cut());
    }

    #[test]
    fn broken_frames_are_refused() {
        let mut framed = BytesMut::new();
        frame(&demo::artist("korn").encode(), &mut framed);
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
