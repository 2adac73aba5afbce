//! Tags of workspaces: flat ones, and those with a value.

use serde::{Deserialize, Serialize};

use crate::document::{Kind, Resource};

/// Flat tag of workspaces.
pub type Tag = Resource<TagAttributes>;

/// Attributes of a [`Tag`].
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct TagAttributes {
    /// Name of the tag.
    pub name: String,
}

impl Kind for TagAttributes {
    const TYPE: &'static str = "tags";
}

/// Tag with a value, on one workspace.
pub type TagBinding = Resource<TagBindingAttributes>;

/// Attributes of a [`TagBinding`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagBindingAttributes {
    /// Key, at most 128 characters.
    pub key: String,
    /// Value, at most 256 characters.
    #[serde(default)]
    pub value: String,
}

impl Kind for TagBindingAttributes {
    const TYPE: &'static str = "tag-bindings";
}
