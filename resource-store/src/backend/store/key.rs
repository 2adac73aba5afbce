//! The keys that resources are ordered and found by.
//!
//! Each string is followed by a zero byte, so that keys sort by group, kind,
//! partition, namespace and name, and a query is a range of keys.
//!
//! Source: `internal/storage/inmem/schema.go`, Consul 1.21.

use std::sync::Arc;

use crate::{
    backend::Query,
    pb::{Id, Type},
    tenancy::WILDCARD,
};

/// A key of the store; cheap to clone.
pub(crate) type Key = Arc<[u8]>;

/// Builds the key of a resource: group, kind, partition, namespace, name.
pub(crate) fn resource_key(id: &Id) -> Vec<u8> {
    let mut key = Vec::with_capacity(96);
    push_id(&mut key, id);
    key
}

/// Builds the prefix of the keys of all that an owner owns: its key and its uid.
pub(crate) fn owner_prefix(owner: &Id) -> Vec<u8> {
    let mut key = Vec::with_capacity(192);
    push_id(&mut key, owner);
    push(&mut key, &owner.uid);
    key
}

/// Builds the key of an owned resource in the index by owner.
pub(crate) fn owned_key(owner: &Id, id: &Id) -> Vec<u8> {
    let mut key = owner_prefix(owner);
    push_id(&mut key, id);
    key
}

/// Builds the prefix of all keys that a query may match: up to its first wildcard.
pub(crate) fn query_prefix(query: &Query) -> Vec<u8> {
    let mut key = Vec::with_capacity(96);
    push(&mut key, &query.kind.group);
    push(&mut key, &query.kind.kind);
    for unit in [&query.tenancy.partition, &query.tenancy.namespace] {
        if unit == WILDCARD {
            return key;
        }
        push(&mut key, unit);
    }
    key.extend_from_slice(query.name_prefix.as_bytes());
    key
}

/// Builds the name of a kind, under which the topics of its changes are.
pub(crate) fn topic_kind(group: &str, kind: &str) -> Vec<u8> {
    joined(&[group, kind])
}

/// Builds the name, within a kind, of the topic of the changes in the tenancies that
/// match these units, each of which may be the wildcard.
pub(crate) fn topic(partition: &str, namespace: &str) -> Vec<u8> {
    joined(&[partition, namespace])
}

fn joined(parts: &[&str]) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    for part in parts {
        push(&mut key, part);
    }
    key
}

fn push_id(key: &mut Vec<u8>, id: &Id) {
    let (group, kind) =
        id.r#type.as_ref().map_or(("", ""), |Type { group, kind, .. }| (group, kind));
    for part in [group, kind, id.partition(), id.namespace(), &id.name] {
        push(key, part);
    }
}

fn push(key: &mut Vec<u8>, part: &str) {
    key.extend_from_slice(part.as_bytes());
    key.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gvk::GroupKind, pb::Tenancy};

    fn id(name: &str) -> Id {
        Id::new(Type::new("g", "v1", "K"), Tenancy::new("p", "n"), name)
    }

    #[test]
    fn keys_leave_the_version_and_the_uid_out() {
        assert_eq!(resource_key(&id("a").with_uid("u")), b"g\0K\0p\0n\0a\0");
        assert_eq!(
            owned_key(&id("a").with_uid("u"), &id("b")),
            b"g\0K\0p\0n\0a\0u\0g\0K\0p\0n\0b\0"
        );
    }

    #[test]
    fn query_prefixes_end_at_the_first_wildcard() {
        let prefix = |partition: &str, namespace: &str| {
            let kind = GroupKind { group: "g".to_owned(), kind: "K".to_owned() };
            query_prefix(
                &Query::new(kind, Tenancy::new(partition, namespace)).with_name_prefix("a"),
            )
        };
        assert_eq!(prefix("p", "n"), b"g\0K\0p\0n\0a");
        assert_eq!(prefix("p", "*"), b"g\0K\0p\0");
        assert_eq!(prefix("*", "n"), b"g\0K\0");
    }
}
