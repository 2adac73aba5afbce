//! Layout of the keys in Consul KV, and the encoding of large values.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
};

use bytes::Bytes;
use consul_watch::types::{KvOp, KvPair};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Version of every document that this crate writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;

/// Size, in bytes, above which a record is split. A value in Consul may have 512 KiB, and in a
/// transaction, as base64, about 380.
const LARGEST_RECORD: usize = 256 * 1024;

/// Largest size of a record after unpacking, in bytes.
const LARGEST_UNPACKED: u64 = 256 * 1024 * 1024;

/// Keys of one cluster, all below its directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    directory: String,
}

impl Layout {
    /// Creates the layout of a directory; slashes at its ends are ignored.
    pub(crate) fn new(directory: &str) -> Self {
        Self { directory: directory.trim_matches('/').to_owned() }
    }

    pub(crate) fn root(&self) -> String {
        format!("{}/", self.directory)
    }

    pub(crate) fn leader(&self) -> String {
        format!("{}/leader", self.directory)
    }

    pub(crate) fn meta(&self) -> String {
        format!("{}/meta", self.directory)
    }

    /// Returns the key of the journal: a batch that did not fit into one transaction.
    pub(crate) fn journal(&self) -> String {
        format!("{}/journal", self.directory)
    }

    pub(crate) fn instance(&self, id: &str) -> String {
        format!("{}/instances/{id}", self.directory)
    }

    pub(crate) fn instances(&self) -> String {
        self.instance("")
    }

    pub(crate) fn blobs(&self) -> String {
        format!("{}/blobs/", self.directory)
    }

    pub(crate) fn folder(&self, kind: Kind) -> String {
        format!("{}/{}/", self.directory, kind.folder())
    }

    pub(crate) fn record(&self, kind: Kind, name: &str) -> String {
        format!("{}{name}", self.folder(kind))
    }
}

/// Kind of a task's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Task,
    Events,
    Plan,
    Applied,
    Drift,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Task, Self::Events, Self::Plan, Self::Applied, Self::Drift];

    fn folder(self) -> &'static str {
        match self {
            Self::Task => "tasks",
            Self::Events => "events",
            Self::Plan => "plans",
            Self::Applied => "applied",
            Self::Drift => "drift",
        }
    }
}

/// Document `meta`, about the cluster as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) v: u32,
    pub(crate) schema: u32,
    pub(crate) created_term: u64,
    pub(crate) term: u64,
    /// Term of the last reset.
    pub(crate) reset_at: Option<u64>,
    #[serde(default)]
    pub(crate) driver: String,
    /// `true` while a reset is unfinished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) resetting: bool,
}

/// Document written by the leader of a term.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record<T> {
    pub(crate) v: u32,
    pub(crate) term: u64,
    #[serde(flatten)]
    pub(crate) body: T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskBody {
    /// Position among the tasks.
    pub(crate) seq: u64,
    pub(crate) source: TaskSource,
    pub(crate) task: cts_tasks::Task,
    /// Pending deletion: the task goes as soon as nothing of it runs any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion: Option<cts_tasks::Deletion>,
}

/// Origin of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskSource {
    Config,
    Api,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EventsBody {
    pub(crate) events: Vec<cts_tasks::Event>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PlanBody {
    pub(crate) plan: cts_tasks::Plan,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AppliedBody {
    /// Inputs that were applied. Their members stand here directly, so that a
    /// document with the digest alone, as earlier versions wrote it, is one of
    /// inputs that are not known one by one.
    #[serde(flatten)]
    pub(crate) applied: cts_tasks::AppliedInputs,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DriftBody {
    pub(crate) drift: cts_tasks::DriftCheck,
}

/// Keys with values to write; `None` deletes the key.
pub(crate) type Writes = BTreeMap<String, Option<Bytes>>;

/// Record in place of one that was split.
#[derive(Debug, Serialize, Deserialize)]
// Refuses other members, so that no ordinary record passes for a manifest.
#[serde(deny_unknown_fields)]
struct Manifest {
    blob: String,
    parts: usize,
    enc: String,
}

/// Value in its written form: itself, or a manifest and the parts that it names.
pub(crate) struct Packed {
    pub(crate) value: Bytes,
    pub(crate) parts: Vec<(String, Bytes)>,
}

/// Returns `true` if a value has to be split.
pub(crate) fn is_large(value: &Bytes) -> bool {
    value.len() > LARGEST_RECORD
}

/// Compresses a large value and splits it into parts.
pub(crate) fn pack(layout: &Layout, value: &Bytes) -> Result<Packed> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    let packed = packer.write_all(value).and_then(|()| packer.finish()).map_err(|source| {
        Error::Other { operation: "pack a record", retryable: false, source: source.into() }
    })?;
    // Named by content: parts of an interrupted write are never mistaken for those of another
    // value.
    let blob = hash(&packed);
    let parts: Vec<_> = packed
        .chunks(LARGEST_RECORD)
        .enumerate()
        .map(|(number, part)| {
            (format!("{}{blob}/{number:04}", layout.blobs()), Bytes::copy_from_slice(part))
        })
        .collect();
    let manifest = Manifest { blob, parts: parts.len(), enc: "gzip".to_owned() };
    let value = serde_json::to_vec(&manifest).unwrap_or_default().into();
    Ok(Packed { value, parts })
}

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).collect()
}

/// Member that every document has.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    v: u32,
}

/// Contents of a cluster's directory at one index.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pairs: BTreeMap<String, Bytes>,
}

impl Snapshot {
    /// Creates a snapshot, with the unfinished batch of the journal applied.
    pub(crate) fn new(layout: &Layout, pairs: Vec<KvPair>) -> Result<Self> {
        let pairs = pairs.into_iter().map(|pair| (pair.key, pair.value)).collect();
        let mut snapshot = Self { pairs };
        for (key, value) in snapshot.journal(layout)?.unwrap_or_default() {
            match value {
                Some(value) => snapshot.pairs.insert(key, value),
                None => snapshot.pairs.remove(&key),
            };
        }
        Ok(snapshot)
    }

    /// Returns the batch that was begun and not completed.
    pub(crate) fn journal(&self, layout: &Layout) -> Result<Option<Writes>> {
        let journal: Option<Record<Journal>> = self.read(layout, &layout.journal())?;
        let text = |value: Option<String>| value.map(Bytes::from);
        Ok(journal.map(|journal| {
            journal.body.writes.into_iter().map(|(key, value)| (key, text(value))).collect()
        }))
    }

    pub(crate) fn keys_below(&self, prefix: &str) -> impl Iterator<Item = &String> {
        self.pairs.range(prefix.to_owned()..).map(|(key, _)| key).take_while({
            let prefix = prefix.to_owned();
            move |key| key.starts_with(&prefix)
        })
    }

    /// Reads a document; `None` if there is none.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        layout: &Layout,
        key: &str,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(layout, key)? else { return Ok(None) };
        let bad = |problem: String| Error::Data { key: key.to_owned(), problem };
        // The version before the rest, since a newer document may not decode at all.
        let version: Version = serde_json::from_slice(&value)
            .map_err(|error| bad(format!("cannot be read: {error}; see -reset-storage")))?;
        if version.v > VERSION {
            return Err(bad(format!(
                "was written by a newer program (document version {}, this one knows {VERSION}); \
                 upgrade this instance",
                version.v
            )));
        }
        serde_json::from_slice(&value)
            .map(Some)
            .map_err(|error| bad(format!("cannot be read: {error}; see -reset-storage")))
    }

    /// Returns a value, reassembled if it was split.
    fn value(&self, layout: &Layout, key: &str) -> Result<Option<Bytes>> {
        let Some(value) = self.pairs.get(key) else { return Ok(None) };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(value) else {
            return Ok(Some(value.clone()));
        };
        let bad = |problem: &str| Error::Data {
            key: key.to_owned(),
            problem: format!("{problem} of its blob {}; see -reset-storage", manifest.blob),
        };
        let mut packed = Vec::new();
        for number in 0..manifest.parts {
            let part = format!("{}{}/{number:04}", layout.blobs(), manifest.blob);
            packed
                .extend_from_slice(self.pairs.get(&part).ok_or_else(|| bad("a part is missing"))?);
        }
        // A reader may meet parts that are being replaced.
        if hash(&packed) != manifest.blob || manifest.enc != "gzip" {
            return Err(bad("the hash is not that"));
        }
        let mut value = Vec::new();
        GzDecoder::new(packed.as_slice())
            // Bounded, so that a damaged or hostile record cannot fill the memory.
            .take(LARGEST_UNPACKED)
            .read_to_end(&mut value)
            .map_err(|_bad| bad("nothing can be unpacked"))?;
        Ok(Some(value.into()))
    }

    /// Returns parts that no record names.
    pub(crate) fn garbage(&self, layout: &Layout) -> Vec<String> {
        let blobs = layout.blobs();
        let named: BTreeSet<String> = self
            .pairs
            .iter()
            .filter(|(key, _)| !key.starts_with(&blobs))
            .filter_map(|(_, value)| serde_json::from_slice::<Manifest>(value).ok())
            .map(|manifest| manifest.blob)
            .collect();
        self.keys_below(&blobs)
            .filter(|key| {
                let blob = key.strip_prefix(&blobs).and_then(|rest| rest.split('/').next());
                !blob.is_some_and(|blob| named.contains(blob))
            })
            .cloned()
            .collect()
    }
}

/// Batch that is larger than one transaction: written as a whole first, then carried out piece by
/// piece, which may be repeated.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) writes: BTreeMap<String, Option<String>>,
}

/// Returns the operation of one write.
pub(crate) fn op(key: &str, value: Option<&Bytes>) -> KvOp {
    match value {
        Some(value) => KvOp::set(key, value.clone()),
        None => KvOp::delete(key),
    }
}
