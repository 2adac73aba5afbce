//! Pairs of the KV store.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{SessionId, nullable};

/// A key of the KV store with its value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct KvPair {
    /// The key.
    pub key: String,
    /// The value; not necessarily text.
    #[serde(default, deserialize_with = "from_base64", serialize_with = "to_base64")]
    pub value: Bytes,
    /// A number that the writer chose.
    #[serde(default)]
    pub flags: u64,
    /// The session that holds the key as a lock.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Number of times that the lock was acquired; a plain write sets it back to 0.
    #[serde(default)]
    pub lock_index: u64,
    /// Index of the write that made the key.
    #[serde(default)]
    pub create_index: u64,
    /// Index of the last change; what `cas` compares.
    #[serde(default)]
    pub modify_index: u64,
}

impl KvPair {
    /// The value, if it is text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.value).ok()
    }
}

pub(crate) fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(Bytes::new()),
        Some(text) => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|error| D::Error::custom(format!("not base64: {error}"))),
    }
}

/// Standard base64 with padding, as Consul writes bytes.
fn base64(value: &[u8]) -> String {
    STANDARD.encode(value)
}

pub(super) fn to_base64<S: Serializer>(value: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_empty() {
        return serializer.serialize_none();
    }
    serializer.serialize_str(&base64(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes() {
        let pair: KvPair = serde_json::from_str(
            r#"{"LockIndex":0,"Key":"a/b","Flags":42,"Value":"/wBo","CreateIndex":5,"ModifyIndex":9,"New":[]}"#,
        )
        .unwrap();
        assert_eq!(pair.value.as_ref(), [0xff, 0, b'h']);
        assert_eq!((pair.text(), pair.flags, pair.modify_index), (None, 42, 9));
        assert_eq!(pair.session, None);
    }

    #[test]
    fn an_empty_value_is_null_on_the_wire() {
        let pair: KvPair = serde_json::from_str(r#"{"Key":"a","Value":null}"#).unwrap();
        assert_eq!(pair.text(), Some(""));
        assert!(serde_json::to_string(&pair).unwrap().contains("\"Value\":null"));
        assert!(serde_json::from_str::<KvPair>(r#"{"Key":"a","Value":"%"}"#).is_err());
    }
}
