//! Deletion marks and finalizers, which live in the metadata of a resource.
//!
//! Source: `internal/resource/resource.go`, Consul 1.21.

use std::collections::BTreeSet;

use crate::pb::Resource;

/// The metadata key that marks a resource for deletion; its value is the time
/// in RFC 3339.
pub const DELETION_TIMESTAMP: &str = "deletionTimestamp";
/// The metadata key that holds a resource back from deletion: names separated
/// by white space.
pub const FINALIZERS: &str = "finalizers";

impl Resource {
    /// Returns `true` if the resource is to be deleted once its finalizers are
    /// gone.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.metadata.contains_key(DELETION_TIMESTAMP)
    }

    /// The finalizers, without repetitions.
    pub fn finalizers(&self) -> BTreeSet<&str> {
        self.metadata
            .get(FINALIZERS)
            .map(|text| text.split_whitespace().collect())
            .unwrap_or_default()
    }

    /// Returns `true` if any finalizer holds the resource back.
    pub fn has_finalizers(&self) -> bool {
        !self.finalizers().is_empty()
    }

    /// Returns `true` if the given finalizer holds the resource back.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().contains(name)
    }

    /// Adds a finalizer; one that is there already changes nothing.
    pub fn add_finalizer(&mut self, name: &str) {
        let mut names = self.finalizers();
        if names.insert(name) {
            let text = join(&names);
            self.metadata.insert(FINALIZERS.to_owned(), text);
        }
    }

    /// Removes a finalizer; one that is not there changes nothing. The key
    /// goes with the last finalizer.
    pub fn remove_finalizer(&mut self, name: &str) {
        let mut names = self.finalizers();
        if !names.remove(name) {
            return;
        }
        let text = join(&names);
        if text.is_empty() {
            self.metadata.remove(FINALIZERS);
        } else {
            self.metadata.insert(FINALIZERS.to_owned(), text);
        }
    }
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RS59
    #[test]
    fn adding_twice_and_removing_the_unknown_change_nothing() {
        let mut resource = Resource::default();
        resource.remove_finalizer("f1");
        assert!(resource.metadata.is_empty());
        resource.add_finalizer("f1");
        resource.add_finalizer("f1");
        assert_eq!(resource.metadata[FINALIZERS], "f1");
        resource.remove_finalizer("unknown");
        assert_eq!(resource.metadata[FINALIZERS], "f1");
        resource.add_finalizer("f2");
        assert_eq!(resource.finalizers(), BTreeSet::from(["f1", "f2"]));
        assert!(resource.has_finalizer("f2") && resource.has_finalizers());
        resource.remove_finalizer("f1");
        resource.remove_finalizer("f2");
        assert!(resource.metadata.is_empty());
    }

    #[test]
    fn any_timestamp_marks() {
        let mut resource = Resource::default();
        assert!(!resource.is_marked_for_deletion());
        resource.metadata.insert(DELETION_TIMESTAMP.to_owned(), String::new());
        assert!(resource.is_marked_for_deletion());
    }
}
