//! What a validate hook says of a resource: which field, and what is wrong.
//!
//! Wrapping errors print what they wrap, because the caller of the service gets
//! one line, and give it as their source, too.
//!
//! ```
//! use resource_store::validation::{Problem, ValidationError};
//!
//! let error = ValidationError::field("name", Problem::Missing);
//! assert_eq!(error.to_string(), r#"invalid "name" field: missing required field"#);
//! let error = ValidationError::element("artists", 2, error);
//! assert_eq!(
//!     error.to_string(),
//!     r#"invalid element at index 2 of list "artists": invalid "name" field: missing required field"#
//! );
//! ```
//!
//! Source: `internal/resource/errors.go`, Consul 1.21.

use crate::{
    pb::{Tenancy, Type},
    registry::HookError,
};

/// The problems that a field can have by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It has to be set.
    #[error("missing required field")]
    Missing,
    /// None of several alternatives is set.
    #[error("missing one of the required fields")]
    MissingOneOf,
    /// It is set, but to nothing.
    #[error("cannot be empty")]
    Empty,
    /// A reference leads out of the tenancy of its resource.
    #[error("resource tenancy and reference tenancy differ")]
    ReferenceTenancy,
    /// It is known, but not yet of use.
    #[error("field is currently not supported")]
    Unsupported,
}

/// The place of a problem in a resource, and the problem.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationError {
    /// A field.
    #[error("invalid \"{name}\" field: {source}")]
    Field {
        /// Name of the field.
        name: String,
        /// The problem.
        source: HookError,
    },
    /// Several fields together.
    #[error("invalid \"{}\" fields: {source}", names.join(","))]
    Fields {
        /// Their names.
        names: Vec<String>,
        /// The problem.
        source: HookError,
    },
    /// An item of a list.
    #[error("invalid element at index {index} of list \"{list}\": {source}")]
    Element {
        /// The name of the list.
        list: String,
        /// Index of the item, from 0.
        index: usize,
        /// The problem.
        source: HookError,
    },
    /// A value of a map.
    #[error("invalid value of key \"{key}\" within {map}: {source}")]
    MapValue {
        /// The name of the map.
        map: String,
        /// Key of the value.
        key: String,
        /// The problem.
        source: HookError,
    },
    /// A key of a map.
    #[error("map {map} contains an invalid key - \"{key}\": {source}")]
    MapKey {
        /// The name of the map.
        map: String,
        /// The key.
        key: String,
        /// The problem.
        source: HookError,
    },
    /// The owner is of a type that owns no such resources.
    #[error("resources of type {resource} cannot be owned by resources with type {owner}")]
    OwnerType {
        /// The type of the resource.
        resource: Type,
        /// The type of the owner.
        owner: Type,
    },
    /// The owner is in a tenancy from which it cannot own the resource.
    #[error("{} cannot be owned by {}", place("resource", resource), place("a resource", owner))]
    OwnerTenancy {
        /// Tenancy of the resource.
        resource: Tenancy,
        /// Tenancy of the owner.
        owner: Tenancy,
    },
    /// A reference is to another type than it has to be.
    #[error("reference must have type {expected}")]
    ReferenceType {
        /// The right type.
        expected: Type,
    },
}

impl ValidationError {
    /// Says that a field is wrong.
    pub fn field(name: &str, source: impl Into<HookError>) -> Self {
        Self::Field { name: name.to_owned(), source: source.into() }
    }

    /// Says that several fields are wrong together.
    pub fn fields(names: &[&str], source: impl Into<HookError>) -> Self {
        let names = names.iter().map(ToString::to_string).collect();
        Self::Fields { names, source: source.into() }
    }

    /// Says that an item of a list is wrong.
    pub fn element(list: &str, index: usize, source: impl Into<HookError>) -> Self {
        Self::Element { list: list.to_owned(), index, source: source.into() }
    }

    /// Says that a value of a map is wrong.
    pub fn map_value(map: &str, key: &str, source: impl Into<HookError>) -> Self {
        Self::MapValue { map: map.to_owned(), key: key.to_owned(), source: source.into() }
    }

    /// Says that a key of a map is wrong.
    pub fn map_key(map: &str, key: &str, source: impl Into<HookError>) -> Self {
        Self::MapKey { map: map.to_owned(), key: key.to_owned(), source: source.into() }
    }
}

fn place(what: &str, tenancy: &Tenancy) -> String {
    match (tenancy.partition.as_str(), tenancy.namespace.as_str()) {
        ("", "") => format!("{what} without tenancy"),
        (partition, "") => format!("{what} in partition {partition}"),
        ("", namespace) => format!("{what} in namespace {namespace}"),
        (partition, namespace) => {
            format!("{what} in partition {partition} and namespace {namespace}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::typed::DataError;

    /// Texts of the specification.
    #[test]
    fn errors_print_as_upstream() {
        use ValidationError as E;
        let (artist, album) = (Type::new("demo", "v2", "Artist"), Type::new("demo", "v2", "Album"));
        let tenancy = Tenancy::new;
        let owner = |resource, owner| E::OwnerTenancy { resource, owner };
        for (error, expected) in [
            (E::field("f", Problem::Missing), "invalid \"f\" field: missing required field"),
            (
                E::fields(&["a", "b"], Problem::MissingOneOf),
                "invalid \"a,b\" fields: missing one of the required fields",
            ),
            (
                E::element("l", 3, Problem::Empty),
                "invalid element at index 3 of list \"l\": cannot be empty",
            ),
            (
                E::map_value("m", "k", Problem::ReferenceTenancy),
                "invalid value of key \"k\" within m: resource tenancy and reference tenancy differ",
            ),
            (
                E::map_key("m", "k", Problem::Unsupported),
                "map m contains an invalid key - \"k\": field is currently not supported",
            ),
            (
                E::OwnerType { resource: album.clone(), owner: artist.clone() },
                "resources of type demo.v2.Album cannot be owned by resources with type demo.v2.Artist",
            ),
            (
                owner(tenancy("a", "b"), tenancy("c", "d")),
                "resource in partition a and namespace b cannot be owned by a resource in partition c \
                 and namespace d",
            ),
            (
                owner(tenancy("a", ""), tenancy("", "")),
                "resource in partition a cannot be owned by a resource without tenancy",
            ),
            (E::ReferenceType { expected: artist }, "reference must have type demo.v2.Artist"),
            (
                E::field("data", DataError::new("a.B", "truncated")),
                "invalid \"data\" field: error parsing resource data as type \"a.B\": truncated",
            ),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn what_is_wrapped_can_be_found() {
        let error = ValidationError::element("l", 0, ValidationError::field("f", Problem::Empty));
        let inner = error.source().unwrap();
        assert!(
            matches!(inner.downcast_ref(), Some(ValidationError::Field { name, .. }) if name == "f")
        );
        assert_eq!(inner.source().unwrap().downcast_ref(), Some(&Problem::Empty));
    }
}
