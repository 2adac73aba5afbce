//! Digests of the inputs of a task, by which equal ones are known.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{ServiceInstance, TaskInputs, hex::hex};

/// A digest of what a task was given when it was last applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputsDigest(String);

/// A digest of one service instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstanceDigest([u8; 32]);

impl InstanceDigest {
    pub(crate) fn of(instance: &ServiceInstance) -> Self {
        Self(Sha256::digest(serde_json::to_vec(instance).unwrap_or_default()).into())
    }
}

/// A key as it goes into a digest, which must not change with the form in which people
/// read it: stores keep digests.
#[derive(Serialize)]
struct HashedKey<'a> {
    path: &'a str,
    value: &'a [u8],
}

impl InputsDigest {
    /// The digest of `inputs`; equal inputs have equal digests.
    pub fn of(inputs: &TaskInputs) -> Self {
        let instances = inputs.services.iter().flatten();
        let instances: Vec<_> = instances.map(|instance| InstanceDigest::of(instance)).collect();
        Self::compose(inputs, &instances)
    }

    /// The digest of `inputs` whose service instances have these digests, which
    /// costs little where only one of many instances changed.
    pub(crate) fn compose(inputs: &TaskInputs, instances: &[InstanceDigest]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([u8::from(inputs.services.is_some())]);
        hasher.update(instances.len().to_le_bytes());
        for instance in instances {
            hasher.update(instance.0);
        }
        let keys = inputs.consul_kv.as_ref().map(|keys| {
            keys.iter().map(|it| HashedKey { path: &it.path, value: &it.value }).collect::<Vec<_>>()
        });
        let rest = (&inputs.catalog_services, keys);
        hasher.update(serde_json::to_vec(&rest).unwrap_or_default());
        Self(hex(&hasher.finalize()))
    }

    /// The digest as lower-case hexadecimal text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
