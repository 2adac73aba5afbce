//! Collecting the references that a computed resource was built from.

use std::collections::BTreeMap;

use crate::pb::{Id, Reference};

/// Collects references without repetitions, to store them in a computed
/// resource and index it by them.
///
/// References that differ in their section only are kept apart.
///
/// Source: `internal/resource/bound_refs.go`, Consul 1.21.
#[derive(Debug, Clone, Default)]
pub struct BoundReferences {
    found: BTreeMap<[String; 7], Reference>,
}

impl BoundReferences {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a reference.
    pub fn add(&mut self, reference: &Reference) {
        self.found.insert(reference.sort_key().map(str::to_owned), reference.clone());
    }

    /// Adds a reference to the named resource as a whole.
    pub fn add_id(&mut self, id: &Id) {
        self.add(&id.to_reference());
    }

    /// The references, sorted.
    pub fn into_sorted(self) -> Vec<Reference> {
        self.found.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{Tenancy, Type};

    #[test]
    fn references_come_out_once_and_sorted() {
        let reference = |name: &str, section: &str| {
            let mut r = Reference::new(Type::new("g", "v1", "Kind"), Tenancy::default(), name);
            section.clone_into(&mut r.section);
            r
        };
        let mut bound = BoundReferences::new();
        for (name, section) in [("b", ""), ("a", "x"), ("a", ""), ("b", "")] {
            bound.add(&reference(name, section));
        }
        bound.add_id(&reference("c", "").to_id());
        let expected = [("a", ""), ("a", "x"), ("b", ""), ("c", "")].map(|(n, s)| reference(n, s));
        assert_eq!(bound.into_sorted(), expected);
        assert!(BoundReferences::new().into_sorted().is_empty());
    }
}
