//! Intentions as they come, are kept and are shown.

use std::{collections::BTreeMap, time::SystemTime};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    testing::{
        refused::{Refused, listed},
        state::format::{content_hash, rfc3339},
    },
    types::{JsonObject, nullable},
};

/// All intentions, by ids of their own: not all of them show theirs.
#[derive(Debug, Default)]
pub(in crate::testing) struct Intentions {
    pub(in crate::testing) all: BTreeMap<String, Record>,
    pub(in crate::testing) index: u64,
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct Record {
    pub(in crate::testing) body: IntentionBody,
    /// Empty for those that were made by their names.
    pub(in crate::testing) id: String,
    pub(in crate::testing) created_at: SystemTime,
    pub(in crate::testing) updated_at: SystemTime,
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

/// The body that makes or changes an intention.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct IntentionBody {
    #[serde(rename = "ID", deserialize_with = "nullable")]
    pub(in crate::testing) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) description: String,
    #[serde(rename = "SourceNS", deserialize_with = "nullable")]
    pub(in crate::testing) source_namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) source_name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) source_peer: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) source_partition: String,
    #[serde(rename = "DestinationNS", deserialize_with = "nullable")]
    pub(in crate::testing) destination_namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) destination_name: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) destination_partition: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) source_type: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) action: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) permissions: Vec<JsonObject>,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) meta: BTreeMap<String, String>,
}

impl IntentionBody {
    pub(in crate::testing) fn settle(&mut self) {
        for namespace in [&mut self.source_namespace, &mut self.destination_namespace] {
            if namespace.is_empty() {
                "default".clone_into(namespace);
            }
        }
        if self.source_type.is_empty() {
            "consul".clone_into(&mut self.source_type);
        }
    }

    pub(in crate::testing) fn check(&self, old: bool) -> Result<(), Refused> {
        if !old && self.destination_name.is_empty() {
            // Current servers ask for the right to write it first, which nobody has.
            return Err(Refused::new(403, "Permission denied"));
        }
        let mut problems = Vec::new();
        for (field, name) in
            [("SourceName", &self.source_name), ("DestinationName", &self.destination_name)]
        {
            if name.is_empty() {
                problems.push(format!("{field} must be set"));
            } else if name != "*" && name.contains('*') {
                problems.push(format!(
                    "{field}: wildcard character '*' cannot be used with partial values"
                ));
            }
        }
        if self.permissions.is_empty() && !matches!(self.action.as_str(), "allow" | "deny") {
            problems.push("Action must be set to 'allow' or 'deny'".to_owned());
        }
        if self.source_type != "consul" {
            problems.push("SourceType must be set to 'consul'".to_owned());
        }
        if problems.is_empty() { Ok(()) } else { Err(Refused::new(500, listed(&problems))) }
    }

    pub(in crate::testing) fn names(&self) -> (&str, &str, &str, &str) {
        (
            &self.source_namespace,
            &self.source_name,
            &self.destination_namespace,
            &self.destination_name,
        )
    }

    /// The higher, the sooner it decides.
    pub(in crate::testing) fn precedence(&self) -> u32 {
        match (self.source_name == "*", self.destination_name == "*") {
            (false, false) => 9,
            (true, false) => 8,
            (false, true) => 6,
            (true, true) => 5,
        }
    }
}

impl Record {
    pub(in crate::testing) fn json(&self, old: bool) -> Value {
        let body = &self.body;
        let mut value = json!({
            "Description": body.description, "SourceNS": body.source_namespace,
            "SourceName": body.source_name, "DestinationNS": body.destination_namespace,
            "DestinationName": body.destination_name, "SourceType": body.source_type,
            "Action": body.action, "Meta": body.meta, "Precedence": body.precedence(),
            "CreatedAt": rfc3339(self.created_at), "UpdatedAt": rfc3339(self.updated_at),
            "Hash": content_hash(&(body.names(), &body.action, &body.description, &body.meta)),
            "CreateIndex": self.created, "ModifyIndex": self.modified,
        });
        if let Some(fields) = value.as_object_mut() {
            if !old && body.description.is_empty() {
                fields.remove("Description");
            }
            if !old && body.meta.is_empty() {
                fields.remove("Meta");
            }
            if !self.id.is_empty() {
                fields.insert("ID".to_owned(), json!(self.id));
            }
            if old {
                fields.insert("DefaultAddr".to_owned(), json!(""));
                fields.insert("DefaultPort".to_owned(), json!(0));
            }
            if !body.permissions.is_empty() {
                fields.insert("Permissions".to_owned(), json!(body.permissions));
                fields.remove("Action");
            }
        }
        value
    }

    pub(in crate::testing) fn shown(&self) -> String {
        let (body, action) = (&self.body, self.body.action.to_uppercase());
        let (source_namespace, source, namespace, destination) = body.names();
        format!(
            "{action} {source_namespace}/{source} => {namespace}/{destination} (ID: {}, Precedence: {})",
            self.id,
            body.precedence()
        )
    }
}
