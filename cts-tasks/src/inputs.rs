//! Inputs of a module that come from Consul.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The data from Consul that a task's module gets, at one moment.
///
/// A kind that the task does not select is `None`; one that it selects and
/// that is empty is `Some` of nothing.
///
/// In serialised form it can be read and written by a person, for a fixture of a test or
/// a record of what a driver got. Values of keys are in it, and may be secret:
///
/// ```
/// use cts_tasks::TaskInputs;
///
/// let inputs: TaskInputs = serde_json::from_str(r#"{
///     "services": [{"name": "web", "id": "web-1", "address": "10.0.0.1", "port": 80}],
///     "consul_kv": [
///         {"path": "app/color", "value": "red"},
///         {"path": "app/key", "value_base64": "/wA="}
///     ]
/// }"#)?;
/// let keys = inputs.consul_kv.as_deref().unwrap_or_default();
/// assert_eq!(keys[0].text(), Some("red"));
/// assert_eq!(keys[1].value, [0xff, 0x00]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TaskInputs {
    /// Service instances: in the order of their services' names, then by node and id;
    /// those of a regular expression all by node and id. Shared between runs, so that a
    /// run of a task with thousands of instances copies none of them.
    pub services: Option<Vec<Arc<ServiceInstance>>>,
    /// Service names with all their tags, sorted.
    pub catalog_services: Option<BTreeMap<String, Vec<String>>>,
    /// Keys with their values, in Consul's order.
    pub consul_kv: Option<Vec<KvEntry>>,
}

/// A key with its value. `Debug` shows the value's length only, since it may be secret.
///
/// In serialised form the value is the text `value`, or `value_base64` where it is no text.
#[derive(Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The full key.
    pub path: String,
    /// The value; Consul does not say that it is text.
    pub value: Vec<u8>,
}

impl KvEntry {
    /// Creates an entry.
    pub fn new(path: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), value: value.into() }
    }

    /// Returns the value if it is text, which is UTF-8.
    pub fn text(&self) -> Option<&str> {
        str::from_utf8(&self.value).ok()
    }
}

impl fmt::Debug for KvEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = format_args!("{} bytes", self.value.len());
        f.debug_struct("KvEntry").field("path", &self.path).field("value", &value).finish()
    }
}

/// The serialised form of a [`KvEntry`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    path: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl Serialize for KvEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text();
        let value_base64 = text.is_none().then(|| STANDARD.encode(&self.value));
        Written { path: (&self.path).into(), value: text.map(Into::into), value_base64 }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KvEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { path, value, value_base64 } = Written::deserialize(deserializer)?;
        // No message holds the value.
        let value = match (value, value_base64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(coded)) => STANDARD.decode(&coded).map_err(|_may_be_secret| {
                D::Error::custom(format_args!("value_base64 of key {path:?} is no base64"))
            })?,
            _ => {
                let wanted = "needs either a value or a value_base64";
                return Err(D::Error::custom(format_args!("key {path:?} {wanted}")));
            }
        };
        Ok(Self { path: path.into_owned(), value })
    }
}

/// An instance of a service, as modules get it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceInstance {
    /// The instance's id, unique on its node.
    pub id: String,
    /// The service's name.
    pub name: String,
    /// Empty, or a kind such as `connect-proxy`.
    pub kind: String,
    /// The instance's address, or its node's.
    pub address: String,
    /// The port; 0 when there is none.
    pub port: i64,
    /// The instance's metadata.
    pub meta: BTreeMap<String, String>,
    /// The instance's tags, sorted.
    pub tags: Vec<String>,
    /// Enterprise namespace; empty on the community edition.
    pub namespace: String,
    /// The worst of its checks: `maintenance`, `critical`, `warning` or `passing`.
    pub status: String,
    /// The node's name.
    pub node: String,
    /// The node's id.
    pub node_id: String,
    /// The node's address.
    pub node_address: String,
    /// The node's datacenter.
    pub node_datacenter: String,
    /// The node's addresses by kind.
    pub node_tagged_addresses: BTreeMap<String, String>,
    /// The node's metadata.
    pub node_meta: BTreeMap<String, String>,
    /// Metadata that the operator configured for this service.
    pub cts_user_defined_meta: BTreeMap<String, String>,
}
