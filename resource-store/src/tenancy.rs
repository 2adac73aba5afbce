//! Tenancy units, scopes, and which units exist.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;

use crate::pb::Tenancy;

/// Stands for every partition or namespace in a list or watch.
pub const WILDCARD: &str = "*";
/// The partition and the namespace that requests without one mean.
pub const DEFAULT_UNIT: &str = "default";

/// The tenancy units that the resources of a type have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Not stated: any units, none checked. Only tombstones are so.
    Undefined,
    /// Neither a partition nor a namespace.
    Cluster,
    /// A partition.
    Partition,
    /// A partition and a namespace.
    Namespace,
}

impl Scope {
    /// The tenancy of a type of this scope if nothing else is said.
    pub fn default_tenancy(self) -> Tenancy {
        match self {
            Self::Undefined | Self::Cluster => Tenancy::default(),
            Self::Partition => Tenancy::new(DEFAULT_UNIT, ""),
            Self::Namespace => Tenancy::new(DEFAULT_UNIT, DEFAULT_UNIT),
        }
    }

    /// The tenancy that matches every resource of this scope.
    pub fn wildcard_tenancy(self) -> Tenancy {
        match self {
            Self::Cluster => Tenancy::default(),
            Self::Partition => Tenancy::new(WILDCARD, ""),
            Self::Undefined | Self::Namespace => Tenancy::new(WILDCARD, WILDCARD),
        }
    }

    /// Clears the units that this scope does not have.
    pub(crate) fn clear_foreign_units(self, tenancy: &mut Tenancy) {
        if matches!(self, Self::Cluster) {
            tenancy.partition.clear();
        }
        if matches!(self, Self::Cluster | Self::Partition) {
            tenancy.namespace.clear();
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undefined => "undefined",
            Self::Cluster => "cluster",
            Self::Partition => "partition",
            Self::Namespace => "namespace",
        })
    }
}

impl Tenancy {
    /// A tenancy of the given units; empty means none, or the default.
    pub fn new(partition: &str, namespace: &str) -> Self {
        Self { partition: partition.to_owned(), namespace: namespace.to_owned() }
    }

    /// Returns `true` if a resource in `unit` belongs to this tenancy, in which
    /// each unit may be [`WILDCARD`].
    pub fn covers(&self, partition: &str, namespace: &str) -> bool {
        (self.partition == WILDCARD || self.partition == partition)
            && (self.namespace == WILDCARD || self.namespace == namespace)
    }
}

/// Fills in the tenancy of a reference inside a resource's data.
///
/// `item` is what was written, `parent` the tenancy of the resource around it,
/// `scope` that of the type referred to. Units that the scope does not have are
/// cleared; an empty partition is the parent's; an empty namespace is the
/// parent's if the partitions agree, else the default one.
///
/// Source: `internal/resource/tenancy.go`, Consul 1.21.
pub fn default_reference_tenancy(
    item: Option<&Tenancy>,
    parent: Option<&Tenancy>,
    scope: Scope,
) -> Tenancy {
    let scope_tenancy = scope.default_tenancy();
    let mut parent = match parent {
        Some(tenancy) => fill(tenancy.clone(), &scope_tenancy, &scope_tenancy),
        None => scope_tenancy.clone(),
    };
    let mut item = item.cloned().unwrap_or_default();
    scope.clear_foreign_units(&mut item);
    scope.clear_foreign_units(&mut parent);
    fill(item, &parent, &scope_tenancy)
}

fn fill(mut item: Tenancy, parent: &Tenancy, scope: &Tenancy) -> Tenancy {
    if item.partition.is_empty() {
        item.partition.clone_from(&parent.partition);
    }
    if item.namespace.is_empty() {
        let from = if item.partition == parent.partition { parent } else { scope };
        item.namespace.clone_from(&from.namespace);
    }
    item
}

/// Why a question about tenancy was not answered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TenancyError(pub String);

/// Knows which partitions and namespaces there are.
///
/// Every method may be asked about units that do not exist.
#[async_trait]
pub trait TenancyBridge: fmt::Debug + Send + Sync + 'static {
    /// Returns `true` if there is such a partition.
    async fn partition_exists(&self, partition: &str) -> Result<bool, TenancyError>;
    /// Returns `true` if the partition is marked for deletion, so that nothing may
    /// be created.
    async fn is_partition_marked_for_deletion(&self, partition: &str)
    -> Result<bool, TenancyError>;
    /// Returns `true` if there is such a namespace in the partition.
    async fn namespace_exists(
        &self,
        partition: &str,
        namespace: &str,
    ) -> Result<bool, TenancyError>;
    /// Returns `true` if the namespace is marked for deletion, so that nothing may
    /// be created.
    async fn is_namespace_marked_for_deletion(
        &self,
        partition: &str,
        namespace: &str,
    ) -> Result<bool, TenancyError>;
}

/// A fixed set of partitions and namespaces.
///
/// The default has the partition `default` with the namespace `default`, as
/// Consul's community edition does.
#[derive(Debug, Clone)]
pub struct StaticTenancies {
    partitions: BTreeMap<String, Partition>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    marked: bool,
    /// Namespaces, `true` if marked for deletion.
    namespaces: BTreeMap<String, bool>,
}

impl Default for StaticTenancies {
    fn default() -> Self {
        Self { partitions: BTreeMap::new() }.with_namespace(DEFAULT_UNIT, DEFAULT_UNIT)
    }
}

impl StaticTenancies {
    /// Adds a namespace, and its partition if that is new.
    #[must_use]
    pub fn with_namespace(mut self, partition: &str, namespace: &str) -> Self {
        let entry = self.partitions.entry(partition.to_owned()).or_default();
        entry.namespaces.entry(namespace.to_owned()).or_default();
        self
    }

    /// Marks a partition for deletion, adding it if it is new.
    #[must_use]
    pub fn with_marked_partition(mut self, partition: &str) -> Self {
        self.partitions.entry(partition.to_owned()).or_default().marked = true;
        self
    }

    /// Marks a namespace for deletion, adding it if it is new.
    #[must_use]
    pub fn with_marked_namespace(mut self, partition: &str, namespace: &str) -> Self {
        let entry = self.partitions.entry(partition.to_owned()).or_default();
        entry.namespaces.insert(namespace.to_owned(), true);
        self
    }
}

#[async_trait]
impl TenancyBridge for StaticTenancies {
    async fn partition_exists(&self, partition: &str) -> Result<bool, TenancyError> {
        Ok(self.partitions.contains_key(partition))
    }

    async fn is_partition_marked_for_deletion(
        &self,
        partition: &str,
    ) -> Result<bool, TenancyError> {
        Ok(self.partitions.get(partition).is_some_and(|p| p.marked))
    }

    async fn namespace_exists(
        &self,
        partition: &str,
        namespace: &str,
    ) -> Result<bool, TenancyError> {
        Ok(self.partitions.get(partition).is_some_and(|p| p.namespaces.contains_key(namespace)))
    }

    async fn is_namespace_marked_for_deletion(
        &self,
        partition: &str,
        namespace: &str,
    ) -> Result<bool, TenancyError> {
        Ok(self
            .partitions
            .get(partition)
            .and_then(|p| p.namespaces.get(namespace))
            .is_some_and(|marked| *marked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Tenancy {
        let (partition, namespace) = text.split_once('.').unwrap_or((text, ""));
        Tenancy::new(partition, namespace)
    }

    #[test]
    fn references_take_missing_units_from_their_parent() {
        let rows = [
            ("", None, ["", "default", "default.default"]),
            ("foo.bar", None, ["", "foo", "foo.bar"]),
            ("", Some("foo.bar"), ["", "foo", "foo.bar"]),
            ("zim", Some("foo.bar"), ["", "zim", "zim.default"]),
            (".gir", Some("foo.bar"), ["", "foo", "foo.gir"]),
            ("foo.bar", Some("zim.gir"), ["", "foo", "foo.bar"]),
        ];
        for (item, parent, expected) in rows {
            let scopes = [Scope::Cluster, Scope::Partition, Scope::Namespace];
            for (scope, expected) in scopes.into_iter().zip(expected) {
                let got = default_reference_tenancy(
                    Some(&parse(item)),
                    parent.map(parse).as_ref(),
                    scope,
                );
                assert_eq!(got, parse(expected), "{item:?} in {parent:?}, scope {scope}");
            }
        }
        assert_eq!(
            default_reference_tenancy(None, None, Scope::Namespace),
            parse("default.default")
        );
    }

    #[test]
    fn wildcards_cover_every_unit() {
        assert!(Tenancy::new("*", "*").covers("a", "b"));
        assert!(Tenancy::new("a", "*").covers("a", "b"));
        assert!(!Tenancy::new("a", "*").covers("b", "b"));
        assert!(!Tenancy::new("a", "").covers("a", "b"));
    }
}
