//! JSON:API documents: objects with attributes and relationships, pages, errors.

mod errors;

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use errors::error_message;

use crate::{Error, Result, id::Id};

/// JSON:API type of an object, by its attributes.
pub trait Kind {
    /// Type, such as `workspaces`.
    const TYPE: &'static str;
}

/// Object of a document: id, attributes, relationships.
///
/// Unknown attributes, links and relationships are ignored, because the platform may add some at
/// any time.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de>"))]
#[non_exhaustive]
pub struct Resource<A> {
    /// Id.
    pub id: Id<A>,
    /// Attributes.
    pub attributes: A,
    /// Relationships, by name.
    #[serde(default)]
    pub relationships: Relationships,
}

/// Related objects by the name of the relationship.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Relationships(BTreeMap<String, Relationship>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Relationship {
    #[serde(default)]
    data: Option<Linkage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Linkage {
    One(Identifier),
    Many(Vec<Identifier>),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Identifier {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Relationships {
    /// Returns the id of the one object of this relationship; `None` if there is none.
    pub fn one<K: Kind>(&self, name: &str) -> Option<Id<K>> {
        match self.0.get(name)?.data.as_ref()? {
            Linkage::One(found) if found.kind == K::TYPE => found.id.parse().ok(),
            Linkage::One(_) | Linkage::Many(_) => None,
        }
    }

    /// Returns the ids of all objects of this relationship.
    pub fn many<K: Kind>(&self, name: &str) -> Vec<Id<K>> {
        match self.0.get(name).and_then(|relationship| relationship.data.as_ref()) {
            Some(Linkage::Many(found)) => {
                let found = found.iter().filter(|one| one.kind == K::TYPE);
                found.filter_map(|one| one.id.parse().ok()).collect()
            }
            Some(Linkage::One(_)) | None => Vec::new(),
        }
    }
}

/// Document about one object.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de>"))]
pub(crate) struct Document<A> {
    pub(crate) data: Resource<A>,
    #[serde(default)]
    included: Vec<Value>,
}

impl<A> Document<A> {
    /// Returns a related object that is included in the document.
    pub(crate) fn included<K: Kind + DeserializeOwned>(
        &self,
        relationship: &str,
    ) -> Option<Resource<K>> {
        let id = self.data.relationships.one::<K>(relationship)?;
        let mut found = self.included.iter().filter(|value| {
            value.get("id").and_then(Value::as_str) == Some(id.as_str())
                && value.get("type").and_then(Value::as_str) == Some(K::TYPE)
        });
        found.find_map(|value| Resource::deserialize(value).ok())
    }
}

/// Page of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de>"))]
pub(crate) struct Page<A> {
    pub(crate) data: Vec<Resource<A>>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Meta {
    #[serde(default)]
    pagination: Option<Pagination>,
}

/// Pagination. Lists of an organization's runs omit the totals, so they are not read.
#[derive(Debug, Clone, Deserialize)]
struct Pagination {
    #[serde(rename = "next-page")]
    next_page: Option<u32>,
}

impl<A> Page<A> {
    /// Returns the number of the next page; `None` on the last one.
    pub(crate) fn next(&self) -> Option<u32> {
        self.meta.pagination.as_ref().and_then(|pagination| pagination.next_page)
    }
}

/// Parses a document; the error names the position of a mistake.
pub(crate) fn read<T: DeserializeOwned>(operation: &'static str, body: &[u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|source| Error::Decode { operation, source: source.into() })
}

#[cfg(test)]
mod tests;
