//! Central configuration entries as they are kept and shown.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{testing::state::format::fingerprint, types::JsonObject};

/// The central configuration entries, by kind and name.
#[derive(Debug, Default)]
pub(in crate::testing) struct ConfigEntries {
    pub(in crate::testing) entries: BTreeMap<(String, String), Entry>,
    pub(in crate::testing) index: u64,
}

#[derive(Debug)]
pub(in crate::testing) struct Entry {
    pub(in crate::testing) fields: JsonObject,
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

impl Entry {
    /// The entry as it is shown; `old` servers show less.
    pub(in crate::testing) fn json(&self, old: bool) -> Value {
        let mut fields = self.fields.clone();
        if !old {
            let kind = fields.get("Kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            if matches!(kind.as_str(), "service-defaults" | "proxy-defaults") {
                fields.entry("TransparentProxy").or_insert_with(|| json!({}));
            }
            if kind == "proxy-defaults" {
                fields.entry("AccessLogs").or_insert_with(|| json!({}));
            }
            let content = Value::Object(self.fields.clone()).to_string();
            fields.insert("Hash".to_owned(), json!(fingerprint(&content)));
        }
        fields.insert("CreateIndex".to_owned(), json!(self.created));
        fields.insert("ModifyIndex".to_owned(), json!(self.modified));
        Value::Object(fields)
    }
}
