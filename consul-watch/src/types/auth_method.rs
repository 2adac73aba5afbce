//! Auth methods and binding rules.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::{JsonObject, SecretObject, from_go_text, go_text, nullable, timestamp, words};

/// A way for programs to get a token by showing who they are.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclAuthMethod {
    /// The method's name, which identifies it.
    pub name: String,
    /// `kubernetes`, `jwt`, `oidc` or `aws-iam` (Consul 1.12). Cannot be changed later.
    #[serde(rename = "Type")]
    pub kind: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// Lifetime of its tokens, 1 minute to 24 hours; `None` is for ever.
    #[serde(
        default,
        rename = "MaxTokenTTL",
        deserialize_with = "from_go_text",
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_text"
    )]
    pub max_token_ttl: Option<Duration>,
    /// `local` (also when empty) or `global`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token_locality: String,
    /// The settings of its kind; empty in lists.
    #[serde(default, deserialize_with = "nullable")]
    pub config: SecretObject,
    /// Enterprise: how logins map to namespaces.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub namespace_rules: Vec<JsonObject>,
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

impl AclAuthMethod {
    /// An auth method to be made.
    pub fn new(
        name: impl Into<String>,
        kind: impl Into<String>,
        config: impl Into<SecretObject>,
    ) -> Self {
        Self { name: name.into(), kind: kind.into(), config: config.into(), ..Self::default() }
    }
}

words! {
    /// Kind of object that the name of a binding rule stands for.
    BindType {
        /// The token gets the identity of a service.
        Service = "service",
        /// The token gets the identity of a node (Consul 1.8.1).
        Node = "node",
        /// The token gets a role.
        Role = "role",
        /// The token gets a policy (Consul 1.18).
        Policy = "policy",
        /// The token gets a templated policy (Consul 1.17).
        TemplatedPolicy = "templated-policy",
    }
}

/// A rule for the rights that a login through an auth method gives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclBindingRule {
    /// The rule's id; empty in one that is to be made.
    #[serde(rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// The auth method.
    pub auth_method: String,
    /// Expression over what is known of the login; empty is every login.
    #[serde(default)]
    pub selector: String,
    /// Kind of object that `bind_name` stands for.
    pub bind_type: BindType,
    /// A name, which may hold placeholders such as `${entity_name}`.
    #[serde(default)]
    pub bind_name: String,
    /// Variables of a templated policy.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub bind_vars: BTreeMap<String, String>,
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

impl AclBindingRule {
    /// A rule for every login through the auth method, to be made.
    pub fn new(
        auth_method: impl Into<String>,
        bind_type: BindType,
        bind_name: impl Into<String>,
    ) -> Self {
        Self {
            id: String::new(),
            description: String::new(),
            auth_method: auth_method.into(),
            selector: String::new(),
            bind_type,
            bind_name: bind_name.into(),
            bind_vars: BTreeMap::new(),
            namespace: None,
            create_index: 0,
            modify_index: 0,
        }
    }
}

/// State of a secondary datacenter's copy of the ACLs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct AclReplication {
    /// `true` if this datacenter copies.
    pub enabled: bool,
    /// `true` if the copying runs.
    pub running: bool,
    /// Datacenter that it is copied from.
    pub source_datacenter: String,
    /// `policies` or `tokens`; empty without copying.
    pub replication_type: String,
    /// Index of the copied policies.
    pub replicated_index: u64,
    /// Index of the copied roles.
    pub replicated_role_index: u64,
    /// Index of the copied tokens.
    pub replicated_token_index: u64,
    /// Time of the last success.
    #[serde(deserialize_with = "timestamp::read")]
    pub last_success: Option<SystemTime>,
    /// Time of the last failure.
    #[serde(deserialize_with = "timestamp::read")]
    pub last_error: Option<SystemTime>,
    /// Reason of the last failure.
    #[serde(deserialize_with = "nullable")]
    pub last_error_message: String,
}
