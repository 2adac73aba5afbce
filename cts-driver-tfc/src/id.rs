//! Ids of the platform's objects, typed by what they name, so that no id goes into the path of
//! another kind.

use std::{fmt, hash, marker::PhantomData, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Id of one object of kind `K`, such as `ws-6jrRyVDv1J8zQMB5`: letters, digits, `-` and `_`, so
/// that it can stand in a path as it is.
///
/// ```
/// use cts_driver_tfc::types::RunId;
///
/// let id: RunId = "run-CZcmD7eagjhyX0vN".parse()?;
/// assert_eq!(id.as_str(), "run-CZcmD7eagjhyX0vN");
/// assert!("../runs".parse::<RunId>().is_err());
/// # Ok::<(), cts_driver_tfc::types::InvalidId>(())
/// ```
pub struct Id<K> {
    text: String,
    // A function pointer keeps `Id` `Send` and `Sync` whatever `K` is.
    kind: PhantomData<fn() -> K>,
}

/// Text that can be no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id (letters, digits, - and _): {0:?}")]
pub struct InvalidId(String);

/// Largest length of an id, in bytes.
const LONGEST: usize = 128;

impl<K> Id<K> {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<K> TryFrom<String> for Id<K> {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(fits) {
            // Cut, because the text comes from elsewhere and goes into an error.
            return Err(InvalidId(text.chars().take(64).collect()));
        }
        Ok(Self { text, kind: PhantomData })
    }
}

impl<K> FromStr for Id<K> {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.to_owned().try_into()
    }
}

// By hand, here and below: derives would ask the same of `K`, which is only a mark.
impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), kind: PhantomData }
    }
}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<K> Eq for Id<K> {}

impl<K> hash::Hash for Id<K> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, K> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
    }
}
