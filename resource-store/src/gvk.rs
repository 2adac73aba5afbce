//! Types of resources: group, version, kind.

use std::{fmt, str::FromStr};

use crate::pb::Type;

/// A text that is not `<Group>.<GroupVersion>.<Kind>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("GVK string must be in the form <Group>.<GroupVersion>.<Kind>, got: {0}")]
pub struct ParseTypeError(String);

impl Type {
    /// A type from its three parts, which are not checked here; the registry
    /// checks them.
    pub fn new(group: &str, group_version: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            group_version: group_version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    /// The type without its version: what the store keys resources by.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// Returns `true` if both belong to one group and kind, whatever the version.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.group == other.group && self.kind == other.kind
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.group, self.group_version, self.kind)
    }
}

impl FromStr for Type {
    type Err = ParseTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(version), Some(kind), None) => Ok(Self::new(group, version, kind)),
            _ => Err(ParseTypeError(text.to_owned())),
        }
    }
}

/// A type without its version.
///
/// All versions of a kind share one object per tenancy and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl GroupKind {
    /// The type of this kind with a version.
    pub fn version(&self, group_version: &str) -> Type {
        Type::new(&self.group, group_version, &self.kind)
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.kind)
    }
}

impl From<&Type> for GroupKind {
    fn from(ty: &Type) -> Self {
        ty.group_kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_reads_and_prints_as_three_parts() {
        let ty: Type = "demo.v2.Artist".parse().unwrap();
        assert_eq!(ty, Type::new("demo", "v2", "Artist"));
        assert_eq!(ty.to_string(), "demo.v2.Artist");
        assert_eq!(ty.group_kind().to_string(), "demo.Artist");
        assert_eq!(ty.group_kind().version("v1").to_string(), "demo.v1.Artist");
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["", "nope", "a.b", "a.b.c.d"] {
            assert_eq!(
                bad.parse::<Type>().unwrap_err().to_string(),
                format!("GVK string must be in the form <Group>.<GroupVersion>.<Kind>, got: {bad}")
            );
        }
    }
}
