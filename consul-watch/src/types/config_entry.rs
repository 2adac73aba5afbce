//! Configuration entries of any kind: kind, name and settings.

use serde::{Deserialize, Serialize, Serializer};

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
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ConfigEntry {
    /// The entry's kind, such as `service-resolver`.
    pub kind: String,
    /// The entry's name, unique for the kind; `global` for `proxy-defaults`. Consul names the
    /// only `mesh` entry itself and shows no name; none is sent.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
    /// The remaining fields.
    #[serde(flatten)]
    pub settings: JsonObject,
}

impl ConfigEntry {
    /// An entry without settings.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into(), ..Self::default() }
    }
}

impl Serialize for ConfigEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Wire<'a> {
            kind: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
            #[serde(flatten)]
            settings: &'a JsonObject,
        }
        // Consul has a fixed name for this kind, and refuses requests that have one.
        let name = (self.kind != "mesh").then_some(self.name.as_str());
        Wire { kind: &self.kind, name, settings: &self.settings }.serialize(serializer)
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
