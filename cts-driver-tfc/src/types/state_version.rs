//! Versions of a workspace's state, and its outputs.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Version of a workspace's state.
pub type StateVersion = Resource<StateVersionAttributes>;

/// Id of a [`StateVersion`].
pub type StateVersionId = Id<StateVersionAttributes>;

/// Attributes of a [`StateVersion`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct StateVersionAttributes {
    /// Serial number, which counts the versions.
    pub serial: u64,
    /// `true` once outputs and resources were read from it; until then they are incomplete.
    #[serde(default)]
    pub resources_processed: bool,
    /// Version of Terraform that wrote it.
    #[serde(default)]
    pub terraform_version: Option<String>,
}

impl Kind for StateVersionAttributes {
    const TYPE: &'static str = "state-versions";
}

/// Output value.
pub type Output = Resource<OutputAttributes>;

/// Attributes of an [`Output`].
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct OutputAttributes {
    /// Name of the output.
    pub name: String,
    /// `true` if the value is kept secret; it is `null` then.
    #[serde(default)]
    pub sensitive: bool,
    /// Value of the output.
    #[serde(default)]
    pub value: Value,
}

impl Kind for OutputAttributes {
    const TYPE: &'static str = "state-version-outputs";
}

/// Without the value, which may be a secret.
impl std::fmt::Debug for OutputAttributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputAttributes").field("name", &self.name).finish_non_exhaustive()
    }
}
