//! The tables of a file: their names, and what is in them.

use redb::TableDefinition;

pub(super) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Records of resources by [`key::resource_key`](crate::backend::store::key::resource_key).
pub(super) const RESOURCES: Definition = TableDefinition::new("resources");
/// Empty records by [`key::owned_key`](crate::backend::store::key::owned_key).
pub(super) const OWNED: Definition = TableDefinition::new("owned");
/// Further values that are kept beside the resources.
pub(super) const META: Definition = TableDefinition::new("meta");

/// A place for resources: those that everybody sees, or others that are to take
/// the place of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The resources that everybody sees.
    Shown,
    /// Resources that come in, within this process.
    Incoming,
}

impl Place {
    /// The tables of records of resources, and of the index by owner.
    pub(super) fn tables(self) -> (Definition, Definition) {
        let (resources, owned) = match self {
            Self::Shown => return (RESOURCES, OWNED),
            Self::Incoming => ("staged", "staged_owned"),
        };
        (TableDefinition::new(resources), TableDefinition::new(owned))
    }
}

/// The position of the last change among all, as eight bytes, big end first.
pub(super) const INDEX: &[u8] = b"index";
