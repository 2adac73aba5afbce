//! Prepared queries and their results.

use std::{collections::BTreeMap, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{JsonObject, ServiceEntry, from_go_text, go_text, is_false, is_zero, nullable, secret};

/// A service lookup that is kept in Consul under a name.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct PreparedQuery {
    /// The query's id, a UUID; empty in one that is to be made.
    #[serde(default, rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The query's name; with a template, the beginning of the names that it answers to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Session with whose end the query goes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// The token that it is carried out with; `None` is that of whoever asks.
    #[serde(
        default,
        deserialize_with = "secret::read_optional",
        serialize_with = "secret::write_optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub token: Option<SecretString>,
    /// Service that it looks up.
    #[serde(default, deserialize_with = "nullable")]
    pub service: PreparedService,
    /// Time for which DNS clients may keep its result; `None` is the servers' setting.
    #[serde(
        default,
        rename = "DNS",
        deserialize_with = "dns_ttl",
        serialize_with = "to_dns_ttl",
        skip_serializing_if = "Option::is_none"
    )]
    pub dns_ttl: Option<Duration>,
    /// Template by which it answers to many names, as Consul takes it.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "JsonObject::is_empty")]
    pub template: JsonObject,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl PreparedQuery {
    /// A lookup of one service under a name, to be made.
    pub fn new(name: impl Into<String>, service: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            service: PreparedService { service: service.into(), ..PreparedService::default() },
            ..Self::default()
        }
    }
}

/// Service that a [`PreparedQuery`] looks up.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct PreparedService {
    /// The service.
    pub service: String,
    /// Further places to look when there is no instance.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Failover::is_empty")]
    pub failover: Failover,
    /// `true` for instances whose checks are all passing only; else warnings are
    /// fine too.
    #[serde(skip_serializing_if = "is_false")]
    pub only_passing: bool,
    /// Checks that do not count.
    #[serde(
        rename = "IgnoreCheckIDs",
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ignore_check_ids: Vec<String>,
    /// Sort by distance from this node; `_agent` is the asked agent's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub near: String,
    /// Tags that instances must have, or with `!` must not have.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Metadata that nodes must have.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_meta: BTreeMap<String, String>,
    /// Metadata that instances must have.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub service_meta: BTreeMap<String, String>,
    /// `true` for what reaches the service through the mesh only.
    #[serde(skip_serializing_if = "is_false")]
    pub connect: bool,
    /// Cluster peer that the service was imported from (Consul 1.14).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub peer: String,
    /// Enterprise sameness group to look in (Consul 1.16). Excludes `failover`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sameness_group: String,
    /// Enterprise namespace of the service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Enterprise partition of the service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition: String,
}

/// Places in which a [`PreparedQuery`] looks when its own datacenter has no instance.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct Failover {
    /// First in so many of the nearest datacenters.
    #[serde(skip_serializing_if = "is_zero")]
    pub nearest_n: u64,
    /// Then in these, in this order.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    /// Or in these, in this order (Consul 1.13), as Consul takes them.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<JsonObject>,
}

impl Failover {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Result of a [`PreparedQuery`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct PreparedQueryResult {
    /// The service.
    pub service: String,
    /// Instances that were found.
    #[serde(deserialize_with = "nullable")]
    pub nodes: Vec<ServiceEntry>,
    /// The datacenter that they are in; empty is the asked agent's, on old servers.
    pub datacenter: String,
    /// Number of other datacenters that were asked.
    pub failovers: u64,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
struct Dns {
    #[serde(rename = "TTL", deserialize_with = "from_go_text", serialize_with = "go_text")]
    ttl: Option<Duration>,
}

fn dns_ttl<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<Dns>::deserialize(d)?.and_then(|dns| dns.ttl))
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn to_dns_ttl<S: serde::Serializer>(ttl: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    Dns { ttl: *ttl }.serialize(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_written() {
        let text = include_str!("../../tests/data/1.8.7/query.json");
        let queries: Vec<PreparedQuery> = serde_json::from_str(text).unwrap();
        let query = &queries[0];
        assert_eq!(query.dns_ttl, Some(Duration::from_secs(10)));
        assert!(query.token.is_none() && query.service.failover.nearest_n == 2);
        let mut made = PreparedQuery::new("q", "web");
        made.token = Some("planted".into());
        made.dns_ttl = Some(Duration::from_secs(10));
        assert!(!format!("{made:?}").contains("planted"));
        assert_eq!(
            serde_json::to_string(&made).unwrap(),
            r#"{"Name":"q","Token":"planted","Service":{"Service":"web"},"DNS":{"TTL":"10s"}}"#
        );
    }
}
