//! Fields of blocks: how each kind is read and merged.

use std::collections::BTreeMap;

use super::{Decoder, Group, Spanned, decode_body, scalar};
use crate::{
    Place,
    config::value::{ConfigValue, ValueKind},
};

/// A type that a body's value under one key decodes into.
pub(in crate::config) trait Field: Sized {
    /// Decodes all entries of the key; `None` if that fails, which is reported.
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self>;

    /// Merges a later file's field over this one.
    fn merge(&mut self, later: Self);
}

/// A block's body with known keys.
pub(in crate::config) trait Body: Sized {
    /// The keys that it knows.
    const KEYS: &'static [&'static str];

    /// A body with nothing set.
    fn start(place: Option<Place>) -> Self;

    /// Decodes a key; whether it is one of [`Body::KEYS`].
    fn set(&mut self, path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> bool;

    /// Keeps entries that somebody else claims.
    fn keep(&mut self, group: &Group<'_>);
}

/// A list of strings; a lone value is a list of one. Merged without duplicates.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Strings {
    pub(in crate::config) items: Vec<Spanned<String>>,
    pub(in crate::config) place: Option<Place>,
}

impl Strings {
    pub(in crate::config) fn to_vec(&self) -> Vec<String> {
        self.items.iter().map(|item| item.value.clone()).collect()
    }
}

impl Field for Strings {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let value = &group.entries.last()?.value;
        let values = match &value.kind {
            ValueKind::List(items) => items.as_slice(),
            ValueKind::Null => &[],
            ValueKind::Object(_) => {
                decoder.wrong_type(path, "a list of strings", value);
                return None;
            }
            _ => std::slice::from_ref(value),
        };
        let items: Option<Vec<_>> = values
            .iter()
            .enumerate()
            .map(|(position, item)| scalar::read(&format!("{path}[{position}]"), item, decoder))
            .collect();
        Some(Self { items: items?, place: value.place.clone() })
    }

    fn merge(&mut self, later: Self) {
        for item in later.items {
            if self.items.iter().all(|known| known.value != item.value) {
                self.items.push(item);
            }
        }
    }
}

/// A map of strings, merged key by key.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct StringMap {
    pub(in crate::config) entries: BTreeMap<String, Spanned<String>>,
}

impl StringMap {
    pub(in crate::config) fn to_map(&self) -> BTreeMap<String, String> {
        self.entries.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect()
    }
}

impl Field for StringMap {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut entries = BTreeMap::new();
        let mut complete = true;
        for entry in &group.entries {
            let Some(objects) = entry.value.objects() else {
                decoder.wrong_type(path, "a map of strings", &entry.value);
                return None;
            };
            for member in objects.into_iter().filter_map(ConfigValue::entries).flatten() {
                if member.value.kind == ValueKind::Null {
                    continue;
                }
                match scalar::read(&format!("{path}.{}", member.key), &member.value, decoder) {
                    Some(value) => {
                        entries.insert(member.key.clone(), value);
                    }
                    None => complete = false,
                }
            }
        }
        complete.then_some(Self { entries })
    }

    fn merge(&mut self, later: Self) {
        self.entries.extend(later.entries);
    }
}

/// A map of strings that stands once.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct OneStringMap(StringMap);

impl OneStringMap {
    pub(in crate::config) fn entries(&self) -> &BTreeMap<String, Spanned<String>> {
        &self.0.entries
    }
}

impl Field for OneStringMap {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let map = StringMap::decode(path, group, decoder)?;
        let mut values = group.entries.iter().flat_map(|entry| {
            let objects = entry.value.objects().unwrap_or_default();
            let lone = objects.len() == 1;
            let place = move |value: &ConfigValue| {
                if lone { entry.key_place.clone() } else { value.place.clone() }
            };
            objects.into_iter().map(place)
        });
        if let Some(place) = values.nth(1) {
            decoder.only_one(group.key, place);
        }
        Some(Self(map))
    }

    fn merge(&mut self, later: Self) {
        self.0.merge(later.0);
    }
}

/// A block that may be repeated; later files append.
#[derive(Debug, Clone)]
pub(in crate::config) struct Blocks<B>(pub(in crate::config) Vec<B>);

impl<B: Body> Field for Blocks<B> {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut blocks = Vec::new();
        for entry in &group.entries {
            let Some(objects) = entry.value.objects() else {
                decoder.wrong_type(path, "a block", &entry.value);
                return None;
            };
            let block_path = format!("{path}[{}]", blocks.len());
            if decoder.refuse_label(&block_path, group.key, entry) {
                continue;
            }
            for object in objects {
                blocks.push(decode_body(&format!("{path}[{}]", blocks.len()), object, decoder));
            }
        }
        Some(Self(blocks))
    }

    fn merge(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// A block whose label decides how its body is decoded.
#[derive(Debug, Clone)]
pub(in crate::config) struct TypedBlock {
    pub(in crate::config) label: String,
    pub(in crate::config) place: Option<Place>,
    pub(in crate::config) body: ConfigValue,
}

/// Blocks whose labels say what their bodies are: `condition "services" { … }`,
/// and in JSON `{"services": {…}}` or a list of such objects.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct TypedBlocks {
    /// The blocks in order.
    pub(in crate::config) blocks: Vec<TypedBlock>,
    /// Bodies that hold no label or more than one, with what they hold.
    pub(in crate::config) odd: Vec<(Vec<String>, Option<Place>)>,
}

impl Field for TypedBlocks {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut found = Self::default();
        for entry in &group.entries {
            let Some(objects) = entry.value.objects() else {
                decoder.wrong_type(path, "a block with a label", &entry.value);
                return None;
            };
            for object in objects {
                let place =
                    if entry.block { entry.key_place.clone() } else { object.place.clone() };
                found.take(object, place.as_ref());
            }
        }
        Some(found)
    }

    fn merge(&mut self, later: Self) {
        self.blocks.extend(later.blocks);
        self.odd.extend(later.odd);
    }
}

impl TypedBlocks {
    fn take(&mut self, object: &ConfigValue, place: Option<&Place>) {
        let entries = object.entries().unwrap_or_default();
        if entries.len() != 1 {
            let labels = entries.iter().map(|entry| entry.key.clone()).collect();
            self.odd.push((labels, place.cloned()));
        }
        for entry in entries {
            self.blocks.push(TypedBlock {
                label: entry.key.clone(),
                place: place.cloned(),
                body: entry.value.clone(),
            });
        }
    }
}
