//! What configuration entries say that matters to a chain.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{GoDuration, testing::state::Refused, types::nullable};

/// The destination of a route, a split, a redirect or a failover.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Destination {
    #[serde(deserialize_with = "nullable")]
    pub(super) service: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) service_subset: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) datacenter: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Split {
    #[serde(default)]
    pub(super) weight: f64,
    #[serde(flatten)]
    pub(super) to: Destination,
}

/// A rule of a router.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) destination: Destination,
    /// As it was written.
    pub(super) definition: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failover {
    #[serde(flatten)]
    to: Destination,
    #[serde(deserialize_with = "nullable")]
    datacenters: Vec<String>,
}

/// A service's resolver; without an entry, that of no settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Resolver {
    #[serde(deserialize_with = "nullable")]
    pub(super) default_subset: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) subsets: BTreeMap<String, Value>,
    pub(super) redirect: Option<Destination>,
    #[serde(deserialize_with = "nullable")]
    failover: BTreeMap<String, Failover>,
    #[serde(deserialize_with = "duration")]
    pub(super) connect_timeout: Option<GoDuration>,
    /// Nothing is set.
    #[serde(skip)]
    pub(super) is_default: bool,
}

impl Resolver {
    pub(super) fn read(entry: Option<&Value>) -> Result<Self, Refused> {
        let mut resolver: Self = entry.map(read).transpose()?.unwrap_or_default();
        let Self { default_subset, subsets, redirect, failover, connect_timeout, .. } = &resolver;
        resolver.is_default = default_subset.is_empty()
            && subsets.is_empty()
            && redirect.is_none()
            && failover.is_empty()
            && connect_timeout.is_none();
        Ok(resolver)
    }

    /// Returns the destinations of a subset's connections when it has no instance,
    /// in order.
    pub(super) fn failover_of(&self, subset: &str) -> Vec<Destination> {
        let Some(failover) = self.failover.get(subset).or_else(|| self.failover.get("*")) else {
            return Vec::new();
        };
        let Failover { to, datacenters } = failover;
        if datacenters.is_empty() {
            return vec![Destination { datacenter: String::new(), ..to.clone() }];
        }
        let to = |datacenter: &String| Destination { datacenter: datacenter.clone(), ..to.clone() };
        datacenters.iter().map(to).collect()
    }
}

/// The changes that a proxy's own settings make to a chain.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::testing) struct ChainOverride {
    #[serde(rename = "OverrideConnectTimeout", deserialize_with = "duration")]
    connect_timeout: Option<GoDuration>,
    #[serde(rename = "OverrideProtocol", deserialize_with = "nullable")]
    protocol: String,
    #[serde(rename = "OverrideMeshGateway", deserialize_with = "nullable")]
    mesh_gateway: GatewayMode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct GatewayMode {
    #[serde(deserialize_with = "nullable")]
    mode: String,
}

impl ChainOverride {
    pub(super) fn protocol(&self) -> Option<&str> {
        Some(self.protocol.as_str()).filter(|protocol| !protocol.is_empty())
    }

    pub(super) fn connect_timeout(&self) -> Option<GoDuration> {
        self.connect_timeout
    }

    pub(super) fn gateway_mode(&self) -> Option<&str> {
        Some(self.mesh_gateway.mode.as_str()).filter(|mode| !mode.is_empty())
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Refused> {
    serde_json::from_value(value.clone())
        .map_err(|error| Refused::new(400, format!("Request decoding failed: {error}")))
}

fn list<T: DeserializeOwned>(entry: &Value, name: &str) -> Result<Vec<T>, Refused> {
    let items = entry.get(name).and_then(Value::as_array);
    items.into_iter().flatten().map(read).collect()
}

pub(super) fn splits(entry: &Value) -> Result<Vec<Split>, Refused> {
    list(entry, "Splits")
}

pub(super) fn routes(entry: &Value) -> Result<Vec<Route>, Refused> {
    let of = |definition: Value| {
        let destination = definition.get("Destination").filter(|value| !value.is_null());
        let destination = destination.map(read).transpose()?.unwrap_or_default();
        Ok(Route { destination, definition })
    };
    list(entry, "Routes")?.into_iter().map(of).collect()
}

/// A text such as `5s`, or a number of nanoseconds; none of either is unset.
fn duration<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<GoDuration>, D::Error> {
    let duration = match Option::<Value>::deserialize(d)? {
        Some(Value::String(text)) if !text.is_empty() => {
            text.parse::<GoDuration>().map_err(serde::de::Error::custom)?.get()
        }
        Some(Value::Number(number)) => {
            std::time::Duration::from_nanos(number.as_u64().unwrap_or_default())
        }
        _ => return Ok(None),
    };
    Ok(Some(GoDuration::new(duration)).filter(|_| !duration.is_zero()))
}
