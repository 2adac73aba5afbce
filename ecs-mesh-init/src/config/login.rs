use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::or_default;

const DEFAULT_METHOD: &str = "iam-ecs-service-token";

/// How the task gets a token: by the AWS IAM auth method.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LoginConfig {
    /// Whether there is a login. Default false.
    pub enabled: bool,
    /// Name of the auth method. Default `iam-ecs-service-token`.
    #[serde(deserialize_with = "method")]
    pub method: String,
    /// Datacenter to log in to; empty is the server's.
    pub datacenter: String,
    /// Whether the bearer token also holds a signed request for the role or user. Default true.
    pub include_entity: bool,
    /// What the token is to carry, over the task's id and cluster.
    pub meta: BTreeMap<String, String>,
    /// AWS region; empty is the task's.
    pub region: String,
    /// STS endpoint; empty is the region's.
    pub sts_endpoint: String,
    /// Value of the header `X-Consul-IAM-ServerID`; empty leaves it out.
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
