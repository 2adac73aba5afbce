//! What the suite stores.

use std::sync::Arc;

use super::write;
use crate::{
    backend::{Backend, Query},
    gvk::GroupKind,
    pb::{Any, Id, Resource, Tenancy, Type},
};

/// Version 1 of the kind `a`. The kinds are lower case, because a backend does
/// not check names.
pub(super) fn a_v1() -> Type {
    Type::new("test", "v1", "a")
}

pub(super) fn a_v2() -> Type {
    Type::new("test", "v2", "a")
}

pub(super) fn b() -> Type {
    Type::new("test", "v1", "b")
}

pub(super) fn default_tenancy() -> Tenancy {
    Tenancy::new("default", "default")
}

fn default_other() -> Tenancy {
    Tenancy::new("default", "other")
}

fn other() -> Tenancy {
    Tenancy::new("billing", "payments")
}

/// A resource with the uid `a` and some data.
pub(super) fn resource(ty: Type, tenancy: Tenancy, name: &str) -> Resource {
    let data = Any { type_url: "test".to_owned(), value: name.as_bytes().to_vec() };
    Resource { data: Some(data), ..Resource::new(Id::new(ty, tenancy, name).with_uid("a")) }
}

fn all() -> Vec<Resource> {
    vec![
        resource(a_v1(), default_tenancy(), "admin"),
        resource(a_v1(), default_tenancy(), "api"),
        resource(a_v2(), default_tenancy(), "web"),
        resource(a_v1(), other(), "api"),
        resource(b(), default_tenancy(), "admin"),
        resource(a_v1(), default_other(), "autoscaler"),
    ]
}

/// Stores everything; gives what was stored, in the order of the rows.
pub(super) async fn store(backend: &Arc<dyn Backend>) -> Vec<Arc<Resource>> {
    let mut stored = Vec::new();
    for resource in all() {
        stored.push(write(backend, resource).await);
    }
    stored
}

/// A query, and the seeded resources that it has to give.
pub(super) struct Row {
    pub(super) query: Query,
    pub(super) expected: &'static [usize],
}

pub(super) fn rows() -> Vec<Row> {
    let a = GroupKind { group: "test".to_owned(), kind: "a".to_owned() };
    let row = |partition, namespace, prefix, expected| Row {
        query: Query::new(a.clone(), Tenancy::new(partition, namespace)).with_name_prefix(prefix),
        expected,
    };
    vec![
        // Spec: RSC22
        row("default", "default", "", &[0, 1, 2]),
        // Spec: RSC23
        row("billing", "payments", "", &[3]),
        // Spec: RSC24
        row("default", "default", "a", &[0, 1]),
        // Spec: RSC25
        row("*", "*", "", &[0, 1, 2, 3, 5]),
        // Spec: RSC26
        row("default", "*", "", &[0, 1, 2, 5]),
        // Spec: RSC27
        row("*", "default", "", &[0, 1, 2]),
        // Spec: RSC28
        row("*", "*", "a", &[0, 1, 3, 5]),
    ]
}
