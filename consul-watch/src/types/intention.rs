//! Intentions: who may connect to whom.

use std::{collections::BTreeMap, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{JsonObject, nullable, timestamp, words};

words! {
    /// Verdict of an intention on a connection.
    IntentionAction {
        /// The connection may be made.
        Allow = "allow",
        /// The connection may not be made.
        Deny = "deny",
    }
}

/// A rule that says which service may connect to which.
///
/// From Consul 1.9 on an intention is identified by its two names; its id is
/// empty unless an older server or the old calls have made it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Intention {
    /// Id, a UUID.
    #[serde(default, rename = "ID", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// A remark for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Enterprise namespace of the source.
    #[serde(default, rename = "SourceNS", skip_serializing_if = "String::is_empty")]
    pub source_namespace: String,
    /// The service that connects; `*` is any.
    pub source_name: String,
    /// Cluster peer of the source (Consul 1.13).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_peer: String,
    /// Enterprise partition of the source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_partition: String,
    /// Enterprise namespace of the destination.
    #[serde(default, rename = "DestinationNS", skip_serializing_if = "String::is_empty")]
    pub destination_namespace: String,
    /// The service that is connected to; `*` is any.
    pub destination_name: String,
    /// Enterprise partition of the destination.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub destination_partition: String,
    /// `consul`, also when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_type: String,
    /// Verdict; `None` when `permissions` give it.
    #[serde(default, deserialize_with = "action", skip_serializing_if = "Option::is_none")]
    pub action: Option<IntentionAction>,
    /// Verdicts on single HTTP requests (Consul 1.9), as Consul takes them.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<JsonObject>,
    /// Free key-value pairs.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The intention with the largest number decides.
    #[serde(default, skip_serializing)]
    pub precedence: u32,
    /// Time of creation.
    #[serde(default, deserialize_with = "timestamp::read", skip_serializing)]
    pub created_at: Option<SystemTime>,
    /// Time of the last change.
    #[serde(default, deserialize_with = "timestamp::read", skip_serializing)]
    pub updated_at: Option<SystemTime>,
    /// Hash of its contents, in base64.
    #[serde(default, deserialize_with = "nullable", skip_serializing)]
    pub hash: String,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl Intention {
    /// An intention to be made.
    pub fn new(
        source: impl Into<String>,
        destination: impl Into<String>,
        action: IntentionAction,
    ) -> Self {
        Self {
            source_name: source.into(),
            destination_name: destination.into(),
            action: Some(action),
            ..Self::default()
        }
    }
}

fn action<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<IntentionAction>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.filter(|word| !word.is_empty()).map(IntentionAction::from))
}

words! {
    /// The end of a connection that intentions are looked up for.
    IntentionSide {
        /// The service that connects.
        Source = "source",
        /// The service that is connected to.
        Destination = "destination",
    }
}
