use serde::Deserialize;
use serde_json::Value;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// One version of a workspace's state.
pub type StateVersion = Resource<StateVersionAttributes>;

/// The id of a [`StateVersion`].
pub type StateVersionId = Id<StateVersionAttributes>;

/// Attributes of a [`StateVersion`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct StateVersionAttributes {
    /// Counts the versions.
    pub serial: u64,
    /// Whether outputs and resources were read from it; until then they are incomplete.
    #[serde(default)]
    pub resources_processed: bool,
    /// The version of Terraform that wrote it.
    #[serde(default)]
    pub terraform_version: Option<String>,
}

impl Kind for StateVersionAttributes {
    const TYPE: &'static str = "state-versions";
}

/// One output value.
pub type Output = Resource<OutputAttributes>;

/// Attributes of an [`Output`].
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct OutputAttributes {
    /// Its name.
    pub name: String,
    /// Whether the value is kept secret; it is `null` then.
    #[serde(default)]
    pub sensitive: bool,
    /// The value.
    #[serde(default)]
    pub value: Value,
}

impl Kind for OutputAttributes {
    const TYPE: &'static str = "state-version-outputs";
}

/// Without the value.
impl std::fmt::Debug for OutputAttributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputAttributes").field("name", &self.name).finish_non_exhaustive()
    }
}
