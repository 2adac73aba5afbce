//! ACL tokens, and the request that makes one.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{
    AclLink, AclPolicy, AclRole, NodeIdentity, ServiceIdentity, TemplatedPolicy, go_text, is_false,
    nullable, secret, timestamp,
};

/// An ACL token with its secret. `Debug` does not show the secret.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclToken {
    /// Names the token without giving access.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// Secret that requests send; `None` when the reader may not see it.
    #[serde(default, rename = "SecretID", deserialize_with = "secret::read_optional")]
    pub secret_id: Option<SecretString>,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// The token's policies.
    #[serde(default, deserialize_with = "nullable")]
    pub policies: Vec<AclLink>,
    /// The token's roles.
    #[serde(default, deserialize_with = "nullable")]
    pub roles: Vec<AclLink>,
    /// Services that it may register.
    #[serde(default, deserialize_with = "nullable")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that it may register (Consul 1.8.1).
    #[serde(default, deserialize_with = "nullable")]
    pub node_identities: Vec<NodeIdentity>,
    /// The token's policies made from templates (Consul 1.17).
    #[serde(default, deserialize_with = "nullable")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// `true` if the token holds in its own datacenter only.
    #[serde(default)]
    pub local: bool,
    /// The auth method whose login made it; empty for others.
    #[serde(default)]
    pub auth_method: String,
    /// Time at which Consul removes the token.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub expiration_time: Option<SystemTime>,
    /// Time at which the token was made.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub create_time: Option<SystemTime>,
    /// Hash of its contents, in base64.
    #[serde(default, deserialize_with = "nullable")]
    pub hash: String,
    /// Enterprise namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

impl PartialEq for AclToken {
    fn eq(&self, other: &Self) -> bool {
        AclTokenEntry::from(self) == AclTokenEntry::from(other)
            && secret::same(self.secret_id.as_ref(), other.secret_id.as_ref())
    }
}

/// An ACL token with everything that its links lead to.
///
/// Servers before 1.12 do not follow the links: the lists are empty then.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclTokenExpanded {
    /// The token itself.
    #[serde(flatten)]
    pub token: AclToken,
    /// Every policy that applies, also through roles and identities.
    #[serde(default, deserialize_with = "nullable")]
    pub expanded_policies: Vec<AclPolicy>,
    /// Every role that applies.
    #[serde(default, deserialize_with = "nullable")]
    pub expanded_roles: Vec<AclRole>,
    /// The answering agent's policy where no rule speaks.
    #[serde(default, rename = "AgentACLDefaultPolicy")]
    pub agent_acl_default_policy: String,
    /// The answering agent's policy while no server can tell.
    #[serde(default, rename = "AgentACLDownPolicy")]
    pub agent_acl_down_policy: String,
    /// Name of the agent that followed the links.
    #[serde(default)]
    pub resolved_by_agent: String,
}

/// An ACL token in a list: without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclTokenEntry {
    /// Names the token without giving access.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// A remark for people.
    #[serde(default)]
    pub description: String,
    /// The token's policies.
    #[serde(default, deserialize_with = "nullable")]
    pub policies: Vec<AclLink>,
    /// The token's roles.
    #[serde(default, deserialize_with = "nullable")]
    pub roles: Vec<AclLink>,
    /// Services that it may register.
    #[serde(default, deserialize_with = "nullable")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that it may register (Consul 1.8.1).
    #[serde(default, deserialize_with = "nullable")]
    pub node_identities: Vec<NodeIdentity>,
    /// The token's policies made from templates (Consul 1.17).
    #[serde(default, deserialize_with = "nullable")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// `true` if the token holds in its own datacenter only.
    #[serde(default)]
    pub local: bool,
    /// The auth method whose login made it; empty for others.
    #[serde(default)]
    pub auth_method: String,
    /// Time at which Consul removes the token.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub expiration_time: Option<SystemTime>,
    /// Time at which the token was made.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub create_time: Option<SystemTime>,
    /// Hash of its contents, in base64.
    #[serde(default, deserialize_with = "nullable")]
    pub hash: String,
    /// Enterprise namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

impl From<&AclToken> for AclTokenEntry {
    fn from(token: &AclToken) -> Self {
        Self {
            accessor_id: token.accessor_id.clone(),
            description: token.description.clone(),
            policies: token.policies.clone(),
            roles: token.roles.clone(),
            service_identities: token.service_identities.clone(),
            node_identities: token.node_identities.clone(),
            templated_policies: token.templated_policies.clone(),
            local: token.local,
            auth_method: token.auth_method.clone(),
            expiration_time: token.expiration_time,
            create_time: token.create_time,
            hash: token.hash.clone(),
            namespace: token.namespace.clone(),
            create_index: token.create_index,
            modify_index: token.modify_index,
        }
    }
}

/// An ACL token to make, or what an existing one is to become.
///
/// `AclTokenRequest::from(&token)` is the request that changes nothing: start
/// there, because an update replaces everything.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclTokenRequest {
    /// A UUID of the caller's choice; `None` lets Consul choose.
    #[serde(rename = "AccessorID", skip_serializing_if = "Option::is_none")]
    pub accessor_id: Option<String>,
    /// A secret of the caller's choice, a UUID; `None` lets Consul choose.
    #[serde(
        rename = "SecretID",
        skip_serializing_if = "Option::is_none",
        serialize_with = "secret::write_optional"
    )]
    pub secret_id: Option<SecretString>,
    /// A remark for people.
    pub description: String,
    /// The token's policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<AclLink>,
    /// The token's roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<AclLink>,
    /// Services that it may register.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that it may register (Consul 1.8.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
    /// The token's policies made from templates (Consul 1.17).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// `true` if the token is to hold in its own datacenter only. Cannot be changed
    /// later.
    #[serde(skip_serializing_if = "is_false")]
    pub local: bool,
    /// Time at which Consul is to remove the token; excludes `expiration_ttl`.
    /// Cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "timestamp::write")]
    pub expiration_time: Option<SystemTime>,
    /// Lifetime, 1 minute to 24 hours unless the servers say otherwise.
    #[serde(
        rename = "ExpirationTTL",
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_text"
    )]
    pub expiration_ttl: Option<Duration>,
    /// Enterprise namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl AclTokenRequest {
    /// A token with this remark and no rights.
    pub fn new(description: impl Into<String>) -> Self {
        Self { description: description.into(), ..Self::default() }
    }
}

impl From<&AclToken> for AclTokenRequest {
    fn from(token: &AclToken) -> Self {
        Self {
            accessor_id: Some(token.accessor_id.clone()),
            secret_id: token.secret_id.clone(),
            description: token.description.clone(),
            policies: token.policies.clone(),
            roles: token.roles.clone(),
            service_identities: token.service_identities.clone(),
            node_identities: token.node_identities.clone(),
            templated_policies: token.templated_policies.clone(),
            local: token.local,
            expiration_time: token.expiration_time,
            expiration_ttl: None,
            namespace: token.namespace.clone(),
        }
    }
}

/// Credentials that a program shows to an auth method to get a token.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AclLogin {
    /// Name of the auth method.
    pub auth_method: String,
    /// Bearer token for the method to verify: a JWT, or a signed request for `aws-iam`.
    #[serde(serialize_with = "secret::write")]
    pub bearer_token: SecretString,
    /// Metadata for the token's description.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl AclLogin {
    /// A login without metadata.
    pub fn new(auth_method: impl Into<String>, bearer_token: SecretString) -> Self {
        Self { auth_method: auth_method.into(), bearer_token, meta: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show_but_are_sent_and_compared() {
        let read = |secret: &str| -> AclToken {
            let text = format!(r#"{{"AccessorID":"a","SecretID":"{secret}","Policies":null}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let token = read("planted");
        assert!(!format!("{token:?}").contains("planted"));
        assert!(token == read("planted") && token != read("other"));
        let request = AclTokenRequest::from(&token);
        assert!(!format!("{request:?}").contains("planted"));
        let sent = serde_json::to_string(&request).unwrap();
        assert_eq!(sent, r#"{"AccessorID":"a","SecretID":"planted","Description":""}"#);
        let login = AclLogin::new("m", "planted".into());
        assert!(!format!("{login:?}").contains("planted"));
        assert!(serde_json::to_string(&login).unwrap().contains("planted"));
    }

    #[test]
    fn a_hidden_secret_is_none() {
        let token: AclToken =
            serde_json::from_str(r#"{"AccessorID":"a","SecretID":"<hidden>"}"#).unwrap();
        assert!(token.secret_id.is_none());
        assert!(serde_json::from_str::<AclToken>("{}").is_err());
    }
}
