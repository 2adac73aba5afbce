//! What a task was given when it was last applied, as a store keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{InputsDigest, KvEntry, ServiceInstance, TaskInputs};

/// Record of the inputs of a task's last apply.
///
/// It says what differs from the inputs of now, also after a restart and on another instance.
/// Values of keys are in it by their digest only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AppliedInputs {
    /// Digest of all of them.
    pub digest: InputsDigest,
    /// Each by what identifies it; `None` where there are more than
    /// [`AppliedInputs::MOST_INPUTS`], or their texts are longer than
    /// [`AppliedInputs::MOST_BYTES`]: each apply writes them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, InputSummary>>,
}

/// A short form of an input: an instance, a catalog service or a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InputSummary {
    /// The input in one line, for a person.
    pub line: String,
    /// Digest of all that the module gets of it.
    pub digest: String,
}

impl AppliedInputs {
    /// Largest number of inputs that are kept one by one.
    pub const MOST_INPUTS: usize = 256;

    /// Largest size, in bytes, of the texts of what is kept one by one. A store may bound what
    /// it takes, Consul's KV to 512 KiB.
    pub const MOST_BYTES: usize = 64 * 1024;

    /// Records these inputs, which have this digest.
    pub(crate) fn new(inputs: &TaskInputs, digest: InputsDigest) -> Self {
        let count = inputs.services.as_ref().map_or(0, Vec::len)
            + inputs.catalog_services.as_ref().map_or(0, BTreeMap::len)
            + inputs.consul_kv.as_ref().map_or(0, Vec::len);
        // Counted first: a task with thousands of instances pays nothing for this.
        if count > Self::MOST_INPUTS {
            return Self::unknown(digest);
        }
        let all = summaries(inputs);
        let bytes: usize =
            all.iter().map(|(key, it)| key.len() + it.line.len() + it.digest.len()).sum();
        let inputs = (bytes <= Self::MOST_BYTES).then_some(all);
        Self { digest, inputs }
    }

    /// Records that inputs with this digest were applied, and nothing else.
    pub fn unknown(digest: InputsDigest) -> Self {
        Self { digest, inputs: None }
    }
}

impl From<&TaskInputs> for AppliedInputs {
    fn from(inputs: &TaskInputs) -> Self {
        Self::new(inputs, InputsDigest::of(inputs))
    }
}

/// Everything in the inputs by what identifies it.
pub(crate) fn summaries(inputs: &TaskInputs) -> BTreeMap<String, InputSummary> {
    let services = inputs.services.iter().flatten();
    let services = services.map(|it| InputSummary::of_instance(it, &digest_of_instance(it)));
    let catalog = inputs.catalog_services.iter().flatten();
    let catalog = catalog.map(|(name, tags)| InputSummary::of_catalog_service(name, tags));
    let keys = inputs.consul_kv.iter().flatten();
    let keys = keys.map(|it| InputSummary::of_key(&it.path, it.value.len(), &digest_of_key(it)));
    services.chain(catalog).chain(keys).collect()
}

impl InputSummary {
    fn of_instance(it: &ServiceInstance, digest: &str) -> (String, Self) {
        let ServiceInstance { name, node, id, address, port, status, .. } = it;
        Self::of_service([name, node, id, address, status], *port, digest)
    }

    /// Summarises an instance, given its name, node, id, address and status.
    pub(crate) fn of_service(
        [name, node, id, address, status]: [&str; 5],
        port: i64,
        digest: &str,
    ) -> (String, Self) {
        let line = format!("service {name}: {id} at {address}:{port} on {node} ({status})");
        (format!("service {name} {node} {id}"), Self { line, digest: digest.to_owned() })
    }

    pub(crate) fn of_catalog_service(name: &str, tags: &[String]) -> (String, Self) {
        let tags = if tags.is_empty() { String::new() } else { format!(": {}", tags.join(", ")) };
        let line = format!("catalog service {name}{tags}");
        (format!("catalog {name}"), Self { line, digest: tags })
    }

    pub(crate) fn of_key(path: &str, bytes: usize, digest: &str) -> (String, Self) {
        let line = format!("key {path}: {bytes} bytes, {digest}");
        (format!("key {path}"), Self { line, digest: digest.to_owned() })
    }
}

pub(crate) fn digest_of_instance(instance: &ServiceInstance) -> String {
    short_digest(&serde_json::to_vec(instance).unwrap_or_default())
}

pub(crate) fn digest_of_key(entry: &KvEntry) -> String {
    short_digest(&entry.value)
}

/// The first 16 hexadecimal digits of the SHA-256.
fn short_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize, length: usize) -> TaskInputs {
        let entry = |number| KvEntry {
            path: format!("{number:04}{}", "x".repeat(length)),
            value: b"hunter2".to_vec(),
        };
        TaskInputs { consul_kv: Some((0..count).map(entry).collect()), ..TaskInputs::default() }
    }

    #[test]
    fn what_is_kept_one_by_one_is_bounded() {
        let most = AppliedInputs::from(&keys(AppliedInputs::MOST_INPUTS, 0));
        assert_eq!(most.inputs.unwrap().len(), AppliedInputs::MOST_INPUTS);
        let more = keys(AppliedInputs::MOST_INPUTS + 1, 0);
        assert_eq!(AppliedInputs::from(&more), AppliedInputs::unknown(InputsDigest::of(&more)));
        assert_eq!(AppliedInputs::from(&keys(20, AppliedInputs::MOST_BYTES / 20)).inputs, None);
    }

    #[test]
    fn values_of_keys_are_not_kept() {
        let text = serde_json::to_string(&AppliedInputs::from(&keys(1, 0))).unwrap();
        assert!(text.contains("key 0000: 7 bytes"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn the_document_of_earlier_versions_is_read() {
        let digest = InputsDigest::of(&keys(1, 0));
        let document = serde_json::json!({ "digest": digest });
        let read: AppliedInputs = serde_json::from_value(document).unwrap();
        assert_eq!(read, AppliedInputs::unknown(digest));
    }
}
