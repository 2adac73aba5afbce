//! Moving resources from one backend to another: a stream that holds them all.
//!
//! [`export`] makes the stream of a snapshot, [`import`] replaces what a
//! backend holds by it. Name, uid, generation, owner, metadata, status and data
//! stay what they are. **Versions change**: each resource gets one that is
//! higher than any number that the source or the target has, by a wide margin.
//! So a version that a client remembers from before, from either store, is
//! refused, and never taken for a new one, whatever is stored under its name by
//! then.
//!
//! # Format
//!
//! The stream begins with the eight bytes `RESOURCE`, and one byte for the
//! version of the format, 1. Then come frames, each with the length of its
//! payload (four bytes, little end first), the CRC-32 of all bytes of the stream
//! from its beginning up to here and of the payload (four bytes), and the
//! payload: a protobuf `hashicorp.consul.resource.Resource`, in the order of
//! [`Backend::snapshot`]. The last frame has the length `0xffff_ffff`, and its
//! payload is the number of resources (eight bytes). Nothing follows it.
//!
//! As each checksum covers all that stands before it, a frame that is changed,
//! lost, added or moved shows.
//!
//! ```
//! use futures::stream;
//! use resource_store::{backend::{Backend, memory::MemoryBackend}, demo, transfer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use futures::TryStreamExt as _;
//! let (old, new) = (MemoryBackend::new(), MemoryBackend::new());
//! let stored = old.write_cas(demo::artist("korn").encode()).await?;
//!
//! let bytes: Vec<Vec<u8>> = transfer::export(old.snapshot().await?).try_collect().await?;
//! let moved =
//!     transfer::import(&new, || stream::iter(bytes.clone().into_iter().map(Ok))).await?;
//! assert_eq!(moved.resources, 1);
//! // The old version is refused.
//! assert!(new.write_cas(stored.as_ref().clone()).await.is_err());
//! # Ok(())
//! # }
//! ```

mod error;
mod format;
mod reader;

use std::{io, sync::Arc};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use prost::Message as _;

pub use error::{Error, Result};

use self::{
    format::{END, FORMAT, MAGIC, MOST_BYTES},
    reader::Frames,
};
use crate::{
    backend::{self, Backend, ResourceStream},
    pb::Resource,
};

/// Distance of the versions of imported resources from any there were: more than a
/// store counts between two of them.
const MARGIN: u64 = 1 << 40;

/// The contents of a stream, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Number of resources.
    pub resources: u64,
    /// The highest number among their versions.
    highest_version: u64,
}

/// Makes the stream of some resources, such as [`Backend::snapshot`] gives. One
/// item is one resource, so memory is bounded by the largest.
pub fn export(resources: ResourceStream) -> impl Stream<Item = Result<Vec<u8>>> + Send {
    let state = Some((resources, crc32fast::Hasher::new(), 0_u64));
    stream::try_unfold(state, |state| async {
        let Some((mut resources, mut hasher, count)) = state else { return Ok(None) };
        let mut bytes = Vec::new();
        if count == 0 {
            bytes.extend_from_slice(MAGIC);
            bytes.push(FORMAT);
        }
        let Some(resource) = resources.try_next().await? else {
            push_frame(&mut bytes, &mut hasher, END, &count.to_le_bytes());
            return Ok(Some((bytes, None)));
        };
        push_frame(&mut bytes, &mut hasher, length_of(&resource)?, &resource.encode_to_vec());
        Ok(Some((bytes, Some((resources, hasher, count + 1)))))
    })
}

fn length_of(resource: &Resource) -> Result<u32> {
    let bytes = resource.encoded_len();
    let length = u32::try_from(bytes).ok().filter(|length| *length <= MOST_BYTES);
    length.ok_or_else(|| Error::TooLarge {
        id: resource.id.as_ref().map(ToString::to_string).unwrap_or_default(),
        bytes,
    })
}

/// Appends a frame to bytes that the hasher has not seen.
fn push_frame(bytes: &mut Vec<u8>, hasher: &mut crc32fast::Hasher, length: u32, payload: &[u8]) {
    bytes.extend_from_slice(&length.to_le_bytes());
    hasher.update(bytes);
    let mut whole = hasher.clone();
    whole.update(payload);
    let checksum = whole.finalize().to_le_bytes();
    bytes.extend_from_slice(&checksum);
    bytes.extend_from_slice(payload);
    hasher.update(&checksum);
    hasher.update(payload);
}

/// Replaces everything that a backend holds by what a stream holds.
///
/// `open` is called twice: the stream is read to its end and checked before
/// the backend is touched, and then read again. What it gives may be cut into
/// pieces anywhere.
///
/// # Errors
///
/// Every [`Error`]; the backend is then as it was, as far as
/// [`Backend::restore`] keeps its word.
pub async fn import<S>(backend: &dyn Backend, mut open: impl FnMut() -> S + Send) -> Result<Summary>
where
    S: Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
{
    let expected = check(open()).await?;
    let mut highest = expected.highest_version;
    let mut present = backend.snapshot().await?;
    while let Some(resource) = present.try_next().await? {
        highest = highest.max(number_of(&resource));
    }
    drop(present);
    let first = first_version(highest, expected.resources)?;
    backend.restore(renumbered(open(), first, expected)).await?;
    Ok(expected)
}

/// Reads a stream to its end, and says what it holds.
///
/// # Errors
///
/// If it is not sound and complete.
pub async fn check<S>(stream: S) -> Result<Summary>
where
    S: Stream<Item = io::Result<Vec<u8>>> + Send,
{
    let mut frames = Frames::new(Box::pin(stream));
    let mut summary = Summary::default();
    while let Some(resource) = frames.next().await? {
        summary.add(&resource);
    }
    Ok(summary)
}

impl Summary {
    fn add(&mut self, resource: &Resource) {
        self.resources += 1;
        self.highest_version = self.highest_version.max(number_of(resource));
    }
}

/// The number that a version is, if it is one.
fn number_of(resource: &Resource) -> u64 {
    resource.version.parse().unwrap_or(0)
}

/// The version of the first resource: behind all there were, and far from the
/// highest number there is.
fn first_version(highest: u64, resources: u64) -> Result<u64> {
    let first = highest.checked_add(MARGIN);
    let room = first.and_then(|first| first.checked_add(resources)?.checked_add(MARGIN));
    first.filter(|_| room.is_some()).ok_or(Error::VersionTooHigh { version: highest })
}

/// The resources of a stream with versions of their own, from `first` on.
fn renumbered<S>(stream: S, first: u64, expected: Summary) -> ResourceStream
where
    S: Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
{
    let frames = Frames::new(Box::pin(stream));
    let resources = stream::try_unfold((frames, Summary::default()), move |state| async move {
        let (mut frames, mut seen) = state;
        let Some(mut resource) = frames.next().await? else {
            return if seen == expected { Ok(None) } else { Err(Error::Changed) };
        };
        let version = first.saturating_add(seen.resources);
        seen.add(&resource);
        resource.version = version.to_string();
        Ok(Some((Arc::new(resource), (frames, seen))))
    });
    resources.map_err(into_backend_error).boxed()
}

fn into_backend_error(error: Error) -> backend::Error {
    match error {
        Error::Backend(error) => error,
        other => backend::Error::failed("import", other),
    }
}
