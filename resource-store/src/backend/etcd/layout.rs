//! Where things are in etcd.
//!
//! Below the prefix:
//!
//! | key | value |
//! |---|---|
//! | `current` | the name of the generation that counts |
//! | `restoring` | the name of the generation that is being restored, while one is |
//! | `g/NAME/i/` owner's key, uid, resource's key | nothing: who owns what |
//! | `g/NAME/m` | there once the generation is replaced |
//! | `g/NAME/r/` resource's key | a record |
//!
//! A restore writes a new generation aside, which no one sees, and then changes
//! `current`. The mark and the resources lie side by side, so that one watch
//! covers them and tells of them in order.

use crate::{
    backend::store::key,
    pb::{Id, Resource},
};

/// The version of a resource.
type Version = String;

/// The name of a generation, which no other ever had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Generation(String);

impl Generation {
    pub(super) fn random() -> Self {
        Self(format!("{:012x}", fastrand::u64(..1 << 48)))
    }

    /// Takes what is stored as the name.
    pub(super) fn from_stored(name: &[u8]) -> Option<Self> {
        let name = str::from_utf8(name).ok()?;
        let sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
        sound.then(|| Self(name.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The version of what was written at a revision of etcd. Etcd counts
    /// revisions from the start when it is set up again; the name tells those apart.
    pub(super) fn version_at(&self, revision: i64) -> Version {
        format!("{}.{revision}", self.0)
    }
}

/// Makes the keys below one prefix.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    prefix: String,
}

/// From a key on to before another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin like this.
    pub(super) fn of_prefix(start: Vec<u8>) -> Self {
        let end = end_of_prefix(&start);
        Self { start, end }
    }
}

/// The first key that comes after all that begin with `prefix`; a single zero
/// byte means the end of all keys.
fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    fn key(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = self.prefix.clone().into_bytes();
        for part in parts {
            key.extend_from_slice(part);
        }
        key
    }

    pub(super) fn current(&self) -> Vec<u8> {
        self.key(&[b"current"])
    }

    pub(super) fn restoring(&self) -> Vec<u8> {
        self.key(&[b"restoring"])
    }

    pub(super) fn generations(&self) -> KeyRange {
        KeyRange::of_prefix(self.key(&[b"g/"]))
    }

    pub(super) fn generation(&self, generation: &Generation) -> KeyRange {
        KeyRange::of_prefix(self.key(&[b"g/", generation.0.as_bytes(), b"/"]))
    }

    fn in_generation(&self, generation: &Generation, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = self.generation(generation).start;
        for part in parts {
            key.extend_from_slice(part);
        }
        key
    }

    pub(super) fn mark(&self, generation: &Generation) -> Vec<u8> {
        self.in_generation(generation, &[b"m"])
    }

    /// The mark and the resources of a generation.
    pub(super) fn watched(&self, generation: &Generation) -> KeyRange {
        KeyRange { start: self.mark(generation), end: self.in_generation(generation, &[b"s"]) }
    }

    pub(super) fn resource(&self, generation: &Generation, id: &Id) -> Vec<u8> {
        self.resource_of_key(generation, &key::resource_key(id))
    }

    /// Returns the key of the resource that has `key`, or the prefix of those whose
    /// keys begin with it.
    pub(super) fn resource_of_key(&self, generation: &Generation, key: &[u8]) -> Vec<u8> {
        self.in_generation(generation, &[b"r/", key])
    }

    /// The entry of a resource in the index by owner, if it has one.
    pub(super) fn owned(&self, generation: &Generation, resource: &Resource) -> Option<Vec<u8>> {
        let (owner, id) = (resource.owner.as_ref()?, resource.id.as_ref()?);
        Some(self.in_generation(generation, &[b"i/", &key::owned_key(owner, id)]))
    }

    /// The entries of all that an owner owns.
    pub(super) fn owned_by(&self, generation: &Generation, owner: &Id) -> KeyRange {
        let key = self.in_generation(generation, &[b"i/", &key::owner_prefix(owner)]);
        KeyRange::of_prefix(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_a_prefix_ends_right_after_it() {
        assert_eq!(KeyRange::of_prefix(b"a".to_vec()).end, b"b");
        assert_eq!(KeyRange::of_prefix(b"a\xff\xff".to_vec()).end, b"b");
        assert_eq!(KeyRange::of_prefix(b"\xff".to_vec()).end, b"\0");
    }

    #[test]
    fn what_is_watched_is_the_mark_and_the_resources() {
        let layout = Layout::new("p/");
        let generation = Generation::random();
        let watched = layout.watched(&generation);
        let resource = layout.resource_of_key(&generation, b"x");
        assert!(watched.start <= layout.mark(&generation));
        assert!(watched.start < resource && resource < watched.end);
        let other = layout.owned_by(&generation, &Id::default());
        assert!(other.end <= watched.start, "the index is not watched");
    }

    #[test]
    fn only_plain_names_are_taken_for_generations() {
        for (name, sound) in [("00ff", true), ("", false), ("a/b", false), ("a\0", false)] {
            assert_eq!(Generation::from_stored(name.as_bytes()).is_some(), sound, "{name:?}");
        }
    }
}
