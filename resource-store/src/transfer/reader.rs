//! Reading an export frame by frame, checking each.

use std::{io, pin::Pin};

use futures::{Stream, StreamExt as _};
use prost::Message as _;

use super::{
    error::{Error, Result},
    format::{END, FORMAT, FRAME_HEAD, MAGIC, MOST_BYTES},
};
use crate::pb::Resource;

/// The resources of a stream of bytes that may be cut anywhere.
pub(super) struct Frames<S> {
    source: Pin<Box<S>>,
    /// Bytes that were read; those before `start` are used.
    buffer: Vec<u8>,
    start: usize,
    /// Over all that was used.
    hasher: crc32fast::Hasher,
    /// Number of bytes that were used.
    at: u64,
    resources: u64,
    began: bool,
}

impl<S: Stream<Item = io::Result<Vec<u8>>>> Frames<S> {
    pub(super) fn new(source: Pin<Box<S>>) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            start: 0,
            hasher: crc32fast::Hasher::new(),
            at: 0,
            resources: 0,
            began: false,
        }
    }

    /// The next resource; none at the end, which is checked, too.
    pub(super) async fn next(&mut self) -> Result<Option<Resource>> {
        if !self.began {
            self.begin().await?;
        }
        let head = self.peek(FRAME_HEAD).await?;
        let Some((&length, rest)) = head.split_first_chunk::<4>() else {
            return Err(self.truncated());
        };
        let Some(&checksum) = rest.first_chunk::<4>() else { return Err(self.truncated()) };
        let (length, checksum) = (u32::from_le_bytes(length), u32::from_le_bytes(checksum));
        let ends = length == END;
        if !ends && length > MOST_BYTES {
            return Err(self.damaged(&format!("a resource cannot have {length} bytes")));
        }
        let size = if ends { 8 } else { usize::try_from(length).unwrap_or(usize::MAX) };
        let frame = self.peek(FRAME_HEAD + size).await?;
        let (head, payload) = frame.split_at(FRAME_HEAD.min(frame.len()));
        let (head, payload) = (head.to_vec(), payload.to_vec());
        let mut whole = self.hasher.clone();
        whole.update(head.get(..4).unwrap_or_default());
        whole.update(&payload);
        let computed = whole.finalize();
        if computed != checksum {
            let what =
                format!("its checksum is {checksum:08x}, but its content gives {computed:08x}");
            return Err(self.damaged(&what));
        }
        if ends {
            return self.end(&payload).await.map(|()| None);
        }
        let resource = Resource::decode(payload.as_slice())
            .map_err(|error| self.damaged(&format!("this is no resource: {error}")))?;
        self.used(FRAME_HEAD + size);
        self.resources += 1;
        Ok(Some(resource))
    }

    async fn begin(&mut self) -> Result<()> {
        let size = MAGIC.len() + 1;
        self.fill(size).await?;
        let Some((magic, rest)) = self.unused().split_first_chunk::<8>() else {
            return Err(if MAGIC.starts_with(self.unused()) {
                self.truncated()
            } else {
                Error::NotAnExport
            });
        };
        if magic != MAGIC {
            return Err(Error::NotAnExport);
        }
        match rest.first() {
            Some(&FORMAT) => {}
            Some(&found) => return Err(Error::Format { found }),
            None => return Err(self.truncated()),
        }
        self.used(size);
        self.began = true;
        Ok(())
    }

    /// Checks the last frame.
    async fn end(&mut self, payload: &[u8]) -> Result<()> {
        let count = <[u8; 8]>::try_from(payload).map(u64::from_le_bytes);
        if count.ok() != Some(self.resources) {
            return Err(self.damaged("it ends with the number of another export"));
        }
        self.used(FRAME_HEAD + payload.len());
        self.fill(1).await?;
        if self.unused().is_empty() {
            Ok(())
        } else {
            Err(self.damaged("something follows its end"))
        }
    }

    fn unused(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Exactly so many bytes, not used yet.
    async fn peek(&mut self, size: usize) -> Result<&[u8]> {
        self.fill(size).await?;
        if self.unused().len() < size {
            return Err(self.truncated());
        }
        Ok(self.unused().get(..size).unwrap_or_default())
    }

    /// Reads until there are so many bytes, or no more.
    async fn fill(&mut self, size: usize) -> Result<()> {
        while self.buffer.len() - self.start < size {
            let Some(bytes) = self.source.next().await else { return Ok(()) };
            let bytes = bytes.map_err(Error::Read)?;
            self.buffer.drain(..self.start);
            self.start = 0;
            self.buffer.extend_from_slice(&bytes);
        }
        Ok(())
    }

    fn used(&mut self, size: usize) {
        let end = (self.start + size).min(self.buffer.len());
        self.hasher.update(self.buffer.get(self.start..end).unwrap_or_default());
        self.start = end;
        self.at += size as u64;
    }

    fn truncated(&self) -> Error {
        Error::Truncated { at: self.at + self.unused().len() as u64, resources: self.resources }
    }

    fn damaged(&self, what: &str) -> Error {
        Error::Damaged { at: self.at, resources: self.resources, what: what.to_owned() }
    }
}
