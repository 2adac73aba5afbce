//! ACL policies, roles and links to them.

use serde::{Deserialize, Serialize};

use super::nullable;

/// A policy or role that a token or role refers to, by id or by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct AclLink {
    /// The object's id. On writing, one of id and name is enough.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl AclLink {
    /// The one with this id.
    pub fn id(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// The one with this name.
    pub fn name(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// The right to register a service and its sidecar, and to find all others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServiceIdentity {
    /// The service.
    pub service_name: String,
    /// Datacenters in which it holds; none is everywhere.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

impl ServiceIdentity {
    /// The identity of a service in every datacenter.
    pub fn new(service_name: impl Into<String>) -> Self {
        Self { service_name: service_name.into(), datacenters: Vec::new() }
    }
}

/// The right to register a node, and to find all services (Consul 1.8.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct NodeIdentity {
    /// The node.
    pub node_name: String,
    /// Datacenter in which it holds.
    #[serde(default)]
    pub datacenter: String,
}

impl NodeIdentity {
    /// The identity of a node.
    pub fn new(node_name: impl Into<String>, datacenter: impl Into<String>) -> Self {
        Self { node_name: node_name.into(), datacenter: datacenter.into() }
    }
}

/// A policy made from one of Consul's templates (Consul 1.17).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct TemplatedPolicy {
    /// The template, such as `builtin/service`.
    pub template_name: String,
    /// Values that the template is filled with.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "TemplateVariables::is_empty"
    )]
    pub template_variables: TemplateVariables,
    /// Datacenters in which it holds; none is everywhere.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

impl TemplatedPolicy {
    /// A template filled with a name.
    pub fn new(template_name: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            template_name: template_name.into(),
            template_variables: TemplateVariables { name: name.into() },
            datacenters: Vec::new(),
        }
    }
}

/// Values that a [`TemplatedPolicy`] is filled with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct TemplateVariables {
    /// The name of the service, node, …
    pub name: String,
}

impl TemplateVariables {
    fn is_empty(&self) -> bool {
        self.name.is_empty()
    }
}

/// An ACL policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclPolicy {
    /// The policy's id; empty in one that is to be made.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The policy's name, which is unique.
    pub name: String,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// The policy's rules, in HCL or JSON; empty in lists.
    #[serde(default)]
    pub rules: String,
    /// Datacenters in which it holds; none is everywhere.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    /// Hash of its contents, in base64.
    #[serde(default, deserialize_with = "nullable", skip_serializing)]
    pub hash: String,
    /// Enterprise namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl AclPolicy {
    /// A policy to be made.
    pub fn new(name: impl Into<String>, rules: impl Into<String>) -> Self {
        Self { name: name.into(), rules: rules.into(), ..Self::default() }
    }
}

/// An ACL role: rights under one name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclRole {
    /// The role's id; empty in one that is to be made.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The role's name, which is unique.
    pub name: String,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// The role's policies.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<AclLink>,
    /// Services that its holders may register.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that its holders may register (Consul 1.8.1).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
    /// The role's policies made from templates (Consul 1.17).
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// Hash of its contents, in base64.
    #[serde(default, deserialize_with = "nullable", skip_serializing)]
    pub hash: String,
    /// Enterprise namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl AclRole {
    /// A role without rights, to be made.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}
