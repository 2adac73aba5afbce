use serde::{Deserialize, Serialize};

use super::{JsonObject, nullable};

/// A central configuration entry, such as a service's defaults.
///
/// Its settings depend on its kind and on Consul's version; they stay as Consul has them.
///
/// ```
/// use consul_watch::types::ConfigEntry;
///
/// let mut entry = ConfigEntry::new("service-defaults", "web");
/// entry.settings.insert("Protocol".into(), "http".into());
/// ```
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Its kind, such as `service-resolver`.
    pub kind: String,
    /// Its name, unique for the kind; `global` for `proxy-defaults`, `mesh` for `mesh`.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
    /// Everything else.
    #[serde(flatten)]
    pub settings: JsonObject,
}

impl ConfigEntry {
    /// An entry without settings.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_reading_and_writing() {
        let text = include_str!("../../tests/data/1.8.7/config-entry.json");
        let entry: ConfigEntry = serde_json::from_str(text).unwrap();
        assert_eq!((entry.kind.as_str(), entry.name.as_str()), ("service-resolver", "web"));
        assert!(entry.modify_index > 0);
        let written = serde_json::to_value(&entry).unwrap();
        assert_eq!(written["DefaultSubset"], "v1");
        assert!(written.get("ModifyIndex").is_none());
    }
}
