//! Prepared queries as they come over the wire and are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query_template::Template;
use crate::types::nullable;

/// A prepared query, as it comes and goes over the wire.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct QueryBody {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) session: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) token: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) template: Template,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) service: QueryService,
    #[serde(rename = "DNS", deserialize_with = "nullable")]
    pub(in crate::testing) dns: Dns,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) create_index: u64,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) modify_index: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct QueryService {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) service: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) sameness_group: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) failover: Failover,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) only_passing: bool,
    #[serde(rename = "IgnoreCheckIDs", deserialize_with = "nullable")]
    pub(in crate::testing) ignore_check_ids: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) near: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) tags: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) node_meta: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) service_meta: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) connect: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct Failover {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) nearest_n: i64,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) datacenters: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) targets: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct Dns {
    #[serde(rename = "TTL", deserialize_with = "nullable")]
    pub(in crate::testing) ttl: String,
}

/// Prepared queries, by id.
#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct PreparedQueries {
    pub(in crate::testing) all: BTreeMap<String, QueryBody>,
    pub(in crate::testing) index: u64,
}
