//! `SecretObject`: JSON whose values no log and no `Debug` shows.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::JsonObject;

/// Settings that Consul does not define and that may hold secrets, such as
/// the credentials of an auth method. `Debug` shows the names only.
#[derive(Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretObject(JsonObject);

impl SecretObject {
    /// Settings to send.
    pub fn new(settings: JsonObject) -> Self {
        Self(settings)
    }

    /// The settings with their values.
    pub fn expose(&self) -> &JsonObject {
        &self.0
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<JsonObject> for SecretObject {
    fn from(settings: JsonObject) -> Self {
        Self(settings)
    }
}

impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reads a secret that must be there.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// Reads a secret; missing, `null`, empty and `<hidden>` are none.
pub(super) fn read_optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty() && text != "<hidden>").map(SecretString::from))
}

/// Writes a secret into a request.
pub(super) fn write<S: Serializer>(
    secret: &SecretString,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

/// Writes a secret into a request, if there is one.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(super) fn write_optional<S: Serializer>(
    secret: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(ExposeSecret::expose_secret).serialize(serializer)
}

/// Returns `true` if two secrets that this process holds are the same.
pub(crate) fn same(a: Option<&SecretString>, b: Option<&SecretString>) -> bool {
    a.map(ExposeSecret::expose_secret) == b.map(ExposeSecret::expose_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_but_no_values() {
        let settings: SecretObject =
            serde_json::from_str(r#"{"Token": "planted", "Host": "planted"}"#).unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("Token") && !shown.contains("planted"), "{shown}");
        assert_eq!(settings.expose().len(), 2);
    }
}
