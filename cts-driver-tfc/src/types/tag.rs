use serde::{Deserialize, Serialize};

use crate::document::{Kind, Resource};

/// A flat tag of workspaces.
pub type Tag = Resource<TagAttributes>;

/// Attributes of a [`Tag`].
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct TagAttributes {
    /// Its name.
    pub name: String,
}

impl Kind for TagAttributes {
    const TYPE: &'static str = "tags";
}

/// A tag with a value, on one workspace.
pub type TagBinding = Resource<TagBindingAttributes>;

/// Attributes of a [`TagBinding`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagBindingAttributes {
    /// The key, at most 128 characters.
    pub key: String,
    /// The value, at most 256 characters.
    #[serde(default)]
    pub value: String,
}

impl Kind for TagBindingAttributes {
    const TYPE: &'static str = "tag-bindings";
}
