//! The `consulLogin` object of the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::default_value::or_default;

const DEFAULT_METHOD: &str = "iam-ecs-service-token";

/// Settings of the login by Consul's AWS IAM auth method.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LoginConfig {
    /// `true` to log in. Default `false`.
    pub enabled: bool,
    /// Name of the auth method. Default `iam-ecs-service-token`.
    #[serde(deserialize_with = "method")]
    pub method: String,
    /// Datacenter to log in to; empty takes the server's.
    pub datacenter: String,
    /// `true` to add a signed request for the role or user to the bearer token. Default `true`.
    pub include_entity: bool,
    /// Metadata of the token, over the task's id and cluster.
    pub meta: BTreeMap<String, String>,
    /// AWS region; empty takes the task's.
    pub region: String,
    /// STS endpoint; empty takes the region's.
    pub sts_endpoint: String,
    /// Value of the header `X-Consul-IAM-ServerID`; empty leaves the header out.
    pub server_id_header_value: String,
}

impl Default for LoginConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            method: DEFAULT_METHOD.to_owned(),
            datacenter: String::new(),
            include_entity: true,
            meta: BTreeMap::new(),
            region: String::new(),
            sts_endpoint: String::new(),
            server_id_header_value: String::new(),
        }
    }
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    or_default(deserializer, |name: &String| name.is_empty(), || DEFAULT_METHOD.to_owned())
}
