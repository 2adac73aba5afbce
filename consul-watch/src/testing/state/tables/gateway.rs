//! Services that gateways stand for, as they are kept and shown.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::types::{JsonObject, nullable};

/// By gateway, service and port.
#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct Gateways {
    pub(in crate::testing) all: BTreeMap<(String, String, i64), Mapping>,
    pub(in crate::testing) index: u64,
}

/// A gateway stands for a service.
#[derive(Debug, Clone)]
pub(in crate::testing) struct Mapping {
    pub(in crate::testing) kind: &'static str,
    pub(in crate::testing) protocol: String,
    pub(in crate::testing) link: Link,
    pub(in crate::testing) from_wildcard: bool,
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

/// A service in a gateway's configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct Link {
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) hosts: Vec<String>,
    #[serde(rename = "CAFile", deserialize_with = "nullable")]
    pub(in crate::testing) ca_file: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) cert_file: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) key_file: String,
    #[serde(rename = "SNI", deserialize_with = "nullable")]
    pub(in crate::testing) sni: String,
}

impl Mapping {
    pub(in crate::testing) fn json(&self, gateway: &str, service: &str, port: i64) -> Value {
        let mut fields = JsonObject::new();
        let mut put = |name: &str, value: Value| {
            if !matches!(&value, Value::String(text) if text.is_empty()) {
                fields.insert(name.to_owned(), value);
            }
        };
        put("Gateway", json!({ "Name": gateway }));
        put("Service", json!({ "Name": service }));
        put("GatewayKind", json!(self.kind));
        if port != 0 {
            put("Port", json!(port));
        }
        put("Protocol", json!(self.protocol));
        if !self.link.hosts.is_empty() {
            put("Hosts", json!(self.link.hosts));
        }
        put("CAFile", json!(self.link.ca_file));
        put("CertFile", json!(self.link.cert_file));
        put("KeyFile", json!(self.link.key_file));
        put("SNI", json!(self.link.sni));
        if self.from_wildcard {
            put("FromWildcard", json!(true));
        }
        put("CreateIndex", json!(self.created));
        put("ModifyIndex", json!(self.modified));
        Value::Object(fields)
    }
}
