//! The message that the data of a resource type consists of.

use std::{fmt, sync::OnceLock};

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::pb::{Any, FILE_DESCRIPTOR_SET};

/// The beginning of every type URL that this crate writes.
const URL_PREFIX: &str = "type.googleapis.com/";

/// A set of descriptors is broken or lacks a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are no descriptor set, or one that contradicts itself.
    #[error("malformed descriptor set")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The set describes no such message.
    #[error("no message named {0}")]
    Missing(String),
    /// The data is of another message.
    #[error("data is of type {got}, not {expected}")]
    WrongMessage {
        /// The message of the schema.
        expected: String,
        /// Name of the message that the data says it is.
        got: String,
    },
    /// The data are no such message.
    #[error("malformed {message}")]
    Data {
        /// The message of the schema.
        message: String,
        /// The problem with the data.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Describes the message that the data of a resource type consists of.
///
/// Made from descriptors, so a type need not be known when this crate is
/// compiled. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    descriptor: MessageDescriptor,
}

impl Schema {
    /// Finds a message in an encoded `FileDescriptorSet`, which must hold the
    /// files it imports, too.
    ///
    /// # Errors
    ///
    /// If the bytes are malformed or lack the message.
    pub fn from_descriptor_set(set: &[u8], message: &str) -> Result<Self, SchemaError> {
        let pool = if set == FILE_DESCRIPTOR_SET { own_pool()? } else { decode_pool(set)? };
        let descriptor = pool
            .get_message_by_name(message)
            .ok_or_else(|| SchemaError::Missing(message.to_owned()))?;
        Ok(Self { descriptor })
    }

    /// Describes the message of a descriptor.
    #[cfg(feature = "derive")]
    pub(crate) fn of_descriptor(descriptor: MessageDescriptor) -> Self {
        Self { descriptor }
    }

    /// The full name of the message.
    pub fn message_name(&self) -> &str {
        self.descriptor.full_name()
    }

    /// The type URL that data of this message carries.
    pub fn type_url(&self) -> String {
        format!("{URL_PREFIX}{}", self.message_name())
    }

    /// Returns `true` if `url` names this message, as a URL or as a bare name.
    pub fn matches_url(&self, url: &str) -> bool {
        url_names(url, self.message_name())
    }

    pub(crate) fn descriptor(&self) -> &MessageDescriptor {
        &self.descriptor
    }

    /// Decodes data of this message without knowing it at compile time.
    pub(crate) fn decode(&self, data: &Any) -> Result<DynamicMessage, SchemaError> {
        if !self.matches_url(&data.type_url) {
            return Err(SchemaError::WrongMessage {
                expected: self.message_name().to_owned(),
                got: bare_name(&data.type_url).to_owned(),
            });
        }
        DynamicMessage::decode(self.descriptor.clone(), data.value.as_slice()).map_err(|e| {
            SchemaError::Data { message: self.message_name().to_owned(), source: Box::new(e) }
        })
    }
}

fn decode_pool(set: &[u8]) -> Result<DescriptorPool, SchemaError> {
    DescriptorPool::decode(set).map_err(|e| SchemaError::Malformed(Box::new(e)))
}

/// The descriptors of this crate, decoded once.
pub(crate) fn own_pool() -> Result<DescriptorPool, SchemaError> {
    static OWN: OnceLock<DescriptorPool> = OnceLock::new();
    if let Some(pool) = OWN.get() {
        return Ok(pool.clone());
    }
    let pool = decode_pool(FILE_DESCRIPTOR_SET)?;
    Ok(OWN.get_or_init(|| pool).clone())
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.message_name()).finish()
    }
}

/// Returns `true` if a type URL names `message`.
///
/// Source: section "field meanings": a bare full name without a slash, as the
/// HCL decoder writes it, counts as well.
pub(crate) fn url_names(url: &str, message: &str) -> bool {
    url.strip_suffix(message).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// A type URL without the usual prefix.
pub(crate) fn bare_name(url: &str) -> &str {
    url.strip_prefix(URL_PREFIX).unwrap_or(url)
}

/// The type URL of a message.
pub(crate) fn type_url(message: &str) -> String {
    format!("{URL_PREFIX}{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIST: &str = "hashicorp.consul.internal.demo.v2.Artist";

    #[test]
    fn a_bare_name_is_as_good_as_a_url() {
        let schema = Schema::from_descriptor_set(FILE_DESCRIPTOR_SET, ARTIST).unwrap();
        assert!(schema.matches_url(ARTIST));
        assert!(schema.matches_url(&schema.type_url()));
        assert!(schema.matches_url(&format!("elsewhere/{ARTIST}")));
        assert!(!schema.matches_url(&format!("x{ARTIST}")) && !schema.matches_url(""));
    }

    #[test]
    fn descriptors_that_lack_the_message_are_refused() {
        let error = Schema::from_descriptor_set(FILE_DESCRIPTOR_SET, "a.B").unwrap_err();
        assert_eq!(error.to_string(), "no message named a.B");
        let error = Schema::from_descriptor_set(&[0xff, 0xff], ARTIST).unwrap_err();
        assert_eq!(error.to_string(), "malformed descriptor set");
    }
}
