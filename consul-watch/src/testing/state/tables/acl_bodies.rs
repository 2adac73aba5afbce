//! Bodies of requests that write ACL objects.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

use super::templated_policy::TemplatedPolicy;
use crate::types::{JsonObject, NodeIdentity, ServiceIdentity, nullable};

/// A policy or role that something refers to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct Link {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
}

/// The body that makes or changes a token.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct TokenBody {
    #[serde(rename = "AccessorID", deserialize_with = "nullable")]
    pub(in crate::testing) accessor: String,
    #[serde(rename = "SecretID", deserialize_with = "nullable")]
    pub(in crate::testing) secret: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) policies: Vec<Link>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) roles: Vec<Link>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) service_identities: Vec<ServiceIdentity>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) node_identities: Vec<NodeIdentity>,
    pub(in crate::testing) templated_policies: Option<Vec<TemplatedPolicy>>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) local: bool,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) expiration_time: String,
    #[serde(rename = "ExpirationTTL", deserialize_with = "nullable")]
    pub(in crate::testing) expiration_ttl: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) auth_method: String,
}

impl TokenBody {
    /// Returns `true` if it is for the token with this accessor, as far as it says.
    pub(in crate::testing) fn is_of(&self, accessor: &str) -> bool {
        self.accessor.is_empty() || self.accessor == accessor
    }
}

impl fmt::Debug for TokenBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBody").field("description", &self.description).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct PolicyBody {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) rules: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) datacenters: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct RoleBody {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) policies: Vec<Link>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) service_identities: Vec<ServiceIdentity>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) node_identities: Vec<NodeIdentity>,
    pub(in crate::testing) templated_policies: Option<Vec<TemplatedPolicy>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct MethodBody {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
    #[serde(rename = "Type", deserialize_with = "nullable")]
    pub(in crate::testing) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) display_name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(rename = "MaxTokenTTL", deserialize_with = "nullable")]
    pub(in crate::testing) max_token_ttl: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) token_locality: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) config: JsonObject,
}

impl fmt::Debug for MethodBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodBody")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct BindingBody {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) auth_method: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) selector: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) bind_type: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) bind_name: String,
}

/// The body of a login.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct LoginBody {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) auth_method: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) bearer_token: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) meta: BTreeMap<String, String>,
}

impl fmt::Debug for LoginBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginBody").field("auth_method", &self.auth_method).finish_non_exhaustive()
    }
}
