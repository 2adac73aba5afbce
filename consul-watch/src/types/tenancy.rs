//! Enterprise namespaces and partitions.

use serde::{Deserialize, Serialize};

use super::{AclLink, JsonObject, nullable};

/// An Enterprise namespace.
///
/// What this type does not name is kept as it was read, so that an update changes only what the
/// caller changes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Namespace {
    /// The namespace's name, unique in the partition.
    pub name: String,
    /// A remark for people.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Rights of its tokens besides their own.
    #[serde(
        default,
        rename = "ACLs",
        deserialize_with = "nullable",
        skip_serializing_if = "NamespaceAcls::is_empty"
    )]
    pub acls: NamespaceAcls,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
    /// The remaining fields, such as its metadata and its partition.
    #[serde(flatten)]
    pub other: JsonObject,
}

impl Namespace {
    /// A namespace to be made.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Rights of every token of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct NamespaceAcls {
    /// Policies of the namespace `default`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub policy_defaults: Vec<AclLink>,
    /// Roles of the namespace `default`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub role_defaults: Vec<AclLink>,
}

impl NamespaceAcls {
    fn is_empty(&self) -> bool {
        self.policy_defaults.is_empty() && self.role_defaults.is_empty()
    }
}

/// An Enterprise partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Partition {
    /// The partition's name, unique in the datacenter.
    pub name: String,
    /// A remark for people.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl Partition {
    /// A partition to be made.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}
