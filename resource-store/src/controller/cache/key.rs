//! Keys of cache indexes.

use crate::{
    pb::{Id, Reference, Tenancy, Type},
    tenancy::WILDCARD,
};

/// A key of an index: parts that sort and nest.
///
/// A text part ends with a zero byte, so that `a` is no prefix of `ab`; a raw
/// part does not, so that it is.
///
/// Deviation: upstream passes untyped arguments and checks them when it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    bytes: Vec<u8>,
}

/// Names a resource: an identity or a reference. Versions, uids and sections do
/// not matter to the cache.
#[derive(Debug, Clone, Copy)]
pub enum RefOrId<'a> {
    /// By identity.
    Id(&'a Id),
    /// By reference.
    Reference(&'a Reference),
}

impl<'a> From<&'a Id> for RefOrId<'a> {
    fn from(id: &'a Id) -> Self {
        Self::Id(id)
    }
}

impl<'a> From<&'a Reference> for RefOrId<'a> {
    fn from(reference: &'a Reference) -> Self {
        Self::Reference(reference)
    }
}

impl<'a> RefOrId<'a> {
    fn parts(self) -> (Option<&'a Type>, Option<&'a Tenancy>, &'a str) {
        match self {
            Self::Id(id) => (id.r#type.as_ref(), id.tenancy.as_ref(), &id.name),
            Self::Reference(r) => (r.r#type.as_ref(), r.tenancy.as_ref(), &r.name),
        }
    }
}

impl Key {
    /// The empty key, which is a prefix of all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a text, which ends.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self
    }

    /// Appends bytes that more may follow.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a number, in an order that is that of the numbers.
    #[must_use]
    pub fn number(self, number: i64) -> Self {
        let shifted = number.cast_unsigned() ^ (1 << 63);
        self.raw(&shifted.to_be_bytes())
    }

    /// The key of a named resource: group, kind, partition, namespace, name.
    pub fn of<'a>(named: impl Into<RefOrId<'a>>) -> Self {
        let (ty, tenancy, name) = named.into().parts();
        let key = Self::new().text(ty.map_or("", |t| &t.group)).text(ty.map_or("", |t| &t.kind));
        let key = key.text(tenancy.map_or("", |t| &t.partition));
        key.text(tenancy.map_or("", |t| &t.namespace)).text(name)
    }

    /// The prefix of the keys of resources whose name begins so; an empty unit
    /// or a wildcard ends it.
    pub fn prefix_of<'a>(named: impl Into<RefOrId<'a>>) -> Self {
        let (ty, tenancy, name) = named.into().parts();
        let mut key =
            Self::new().text(ty.map_or("", |t| &t.group)).text(ty.map_or("", |t| &t.kind));
        let units = tenancy.map_or(["", ""], |t| [t.partition.as_str(), t.namespace.as_str()]);
        for unit in units {
            if unit.is_empty() || unit == WILDCARD {
                return key;
            }
            key = key.text(unit);
        }
        key.raw(name.as_bytes())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_the_first_open_unit() {
        let id = |partition: &str, namespace: &str| {
            Id::new(Type::new("g", "v1", "K"), Tenancy::new(partition, namespace), "na")
        };
        assert_eq!(Key::prefix_of(&id("p", "n")).bytes(), b"g\0K\0p\0n\0na");
        assert_eq!(Key::prefix_of(&id("p", "*")).bytes(), b"g\0K\0p\0");
        assert_eq!(Key::prefix_of(&id("", "n")).bytes(), b"g\0K\0");
        assert_eq!(Key::of(&id("p", "n")).bytes(), b"g\0K\0p\0n\0na\0");
        assert_eq!(Key::of(&id("p", "n")), Key::of(&id("p", "n").to_reference()));
    }

    #[test]
    fn numbers_keep_their_order() {
        let key = |n| Key::new().number(n);
        assert!(key(-5) < key(-1) && key(-1) < key(0) && key(0) < key(1999));
    }
}
