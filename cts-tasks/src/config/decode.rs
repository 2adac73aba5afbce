//! Typed, lenient decoding of [`ConfigValue`]s into bodies of optional fields,
//! with places; and merging of such bodies.

mod field;
mod scalar;

use std::collections::BTreeMap;

pub(super) use field::{
    Blocks, Body, Field, OneStringMap, StringMap, Strings, TypedBlock, TypedBlocks,
};
pub(super) use scalar::{GivenDuration, Scalar, SignedDuration, lone, parse_bool};

use super::{
    registry::Registry,
    value::{ConfigValue, Entry, ValueKind},
};
use crate::{Diagnostic, Place};

/// A value with the place where it was set; `None` if that is no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) place: Option<Place>,
}

/// Errors and warnings, as they are found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<Diagnostic>,
    pub(super) warnings: Vec<Diagnostic>,
    /// `true` if deprecated names are errors instead of warnings.
    pub(super) refuse_deprecated: bool,
    /// `true` if a file could not be read, so that what seems missing may stand
    /// there.
    pub(super) incomplete: bool,
}

impl Findings {
    pub(super) fn error(&mut self, message: impl Into<String>, place: Option<Place>) {
        self.errors.push(Diagnostic::error(message).at(place));
    }

    pub(super) fn error_help(
        &mut self,
        message: impl Into<String>,
        place: Option<Place>,
        help: impl Into<String>,
    ) {
        self.errors.push(Diagnostic::error(message).at(place).help(help));
    }

    /// Notes a name that still works and has a successor.
    pub(super) fn deprecated(
        &mut self,
        message: impl Into<String>,
        place: Option<Place>,
        help: impl Into<String>,
    ) {
        if self.refuse_deprecated {
            self.error_help(message, place, help);
        } else {
            self.warn(message, place, help);
        }
    }

    pub(super) fn warn(
        &mut self,
        message: impl Into<String>,
        place: Option<Place>,
        help: impl Into<String>,
    ) {
        self.warnings.push(Diagnostic::warning(message).at(place).help(help));
    }
}

/// A key that nothing reads.
#[derive(Debug, Clone)]
pub(super) struct UnknownKey {
    pub(super) path: String,
    pub(super) place: Option<Place>,
    /// Advice for the operator.
    pub(super) hint: Option<String>,
}

/// The state of decoding one file: the kinds of blocks, the findings and the
/// unknown keys so far.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    pub(super) registry: &'a Registry,
    pub(super) findings: &'a mut Findings,
    pub(super) unknown: Vec<UnknownKey>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(registry: &'a Registry, findings: &'a mut Findings) -> Self {
        Self { registry, findings, unknown: Vec::new() }
    }

    pub(super) fn wrong_type(&mut self, path: &str, expected: &str, found: &ConfigValue) {
        self.findings.error(
            format!("{path}: expected {expected}, found {}", found.describe()),
            found.place.clone(),
        );
    }

    /// Reports the label of a block that has none; whether there is one.
    pub(super) fn refuse_label(&mut self, path: &str, key: &str, entry: &Entry) -> bool {
        let Some(label) = entry.folded_label() else { return false };
        self.unknown.push(UnknownKey {
            path: join_path(path, label),
            place: entry.key_place.clone(),
            hint: Some(format!("a {key} block has no label: write {key} {{ … }}")),
        });
        true
    }

    pub(super) fn only_one(&mut self, key: &str, place: Option<Place>) {
        self.findings.error_help(
            format!("only one '{key}' block can be configured"),
            place,
            "keep one of the blocks, with the settings of both",
        );
    }
}

/// A key within its body, with all entries of that key.
pub(super) struct Group<'e> {
    pub(super) key: &'e str,
    pub(super) entries: Vec<&'e Entry>,
}

impl Group<'_> {
    /// Returns `true` if nothing but `null` stands here, which is as if the key
    /// were not there.
    fn is_null(&self) -> bool {
        self.entries.iter().all(|entry| entry.value.kind == ValueKind::Null)
    }
}

/// The entries by key, in the order in which the keys first stand.
pub(super) fn group(entries: &[Entry]) -> Vec<Group<'_>> {
    group_by(entries, |key| key)
}

/// As [`group`], with each key as `named` says that it is called.
pub(super) fn group_by<'e>(
    entries: impl IntoIterator<Item = &'e Entry>,
    named: impl Fn(&'e str) -> &'e str,
) -> Vec<Group<'e>> {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for entry in entries {
        let key = named(&entry.key);
        let position = *positions.entry(key).or_insert(groups.len());
        match groups.get_mut(position) {
            Some(group) => group.entries.push(entry),
            None => groups.push(Group { key, entries: vec![entry] }),
        }
    }
    groups
}

/// The one of `known` that `key` means: upper and lower case are the same.
///
/// Source: `mitchellh/mapstructure` v1.4, which matches fields by `strings.EqualFold`.
pub(super) fn named_as(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let exact = known.iter().find(|known| **known == key);
    exact.or_else(|| known.iter().find(|known| known.eq_ignore_ascii_case(key))).copied()
}

/// `path.key`, or `key` at the top.
pub(super) fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Declares a body: a struct of optional fields, each decoded from its key,
/// merged field by field. A key that no field has goes to `rest` if somebody
/// claims it, and is reported otherwise.
macro_rules! body {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty = $key:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        pub(super) struct $name {
            pub(super) place: Option<$crate::Place>,
            /// Keys that are there but could not be decoded.
            pub(super) invalid: Vec<&'static str>,
            /// Entries that somebody else claims.
            pub(super) rest: Vec<$crate::config::Entry>,
            $(pub(super) $field: Option<$type>,)*
        }

        impl $crate::config::decode::Body for $name {
            const KEYS: &'static [&'static str] = &[$($key),*];

            fn start(place: Option<$crate::Place>) -> Self {
                Self { place, ..Self::default() }
            }

            fn set(
                &mut self,
                path: &str,
                group: &$crate::config::decode::Group<'_>,
                decoder: &mut $crate::config::decode::Decoder<'_>,
            ) -> bool {
                match group.key {
                    $($key => {
                        self.$field = $crate::config::decode::Field::decode(path, group, decoder);
                        if self.$field.is_none() {
                            self.invalid.push($key);
                        }
                    })*
                    _ => return false,
                }
                true
            }

            fn keep(&mut self, group: &$crate::config::decode::Group<'_>) {
                self.rest.extend(group.entries.iter().map(|entry| $crate::config::Entry {
                    key: group.key.to_owned(),
                    ..(*entry).clone()
                }));
            }
        }

        impl $crate::config::decode::Field for $name {
            fn decode(
                path: &str,
                group: &$crate::config::decode::Group<'_>,
                decoder: &mut $crate::config::decode::Decoder<'_>,
            ) -> Option<Self> {
                $crate::config::decode::decode_block(path, group, decoder)
            }

            fn merge(&mut self, later: Self) {
                self.place = self.place.take().or(later.place);
                self.invalid.extend(later.invalid);
                self.rest.extend(later.rest);
                $($crate::config::decode::merge_option(&mut self.$field, later.$field);)*
            }
        }
    };
}

pub(super) use body;

/// Merges a later file's field over an earlier one's.
pub(super) fn merge_option<T: Field>(earlier: &mut Option<T>, later: Option<T>) {
    match (earlier.as_mut(), later) {
        (Some(earlier), Some(later)) => earlier.merge(later),
        (None, later) => *earlier = later,
        (Some(_), None) => {}
    }
}

/// Decodes a block that may stand once.
pub(super) fn decode_block<B: Body>(
    path: &str,
    group: &Group<'_>,
    decoder: &mut Decoder<'_>,
) -> Option<B> {
    let mut bodies = Vec::new();
    for entry in &group.entries {
        let Some(objects) = entry.value.objects() else {
            decoder.wrong_type(path, "a block", &entry.value);
            return None;
        };
        if decoder.refuse_label(path, group.key, entry) {
            return None;
        }
        bodies.extend(objects.into_iter().map(|object| (entry, object)));
    }
    if let Some((entry, object)) = bodies.get(1) {
        let place = if entry.block { entry.key_place.clone() } else { object.place.clone() };
        decoder.only_one(group.key, place);
    }
    // An empty list is no block, and no mistake.
    let Some((_, body)) = bodies.first() else { return Some(B::start(None)) };
    Some(decode_body(path, body, decoder))
}

/// Decodes one body.
pub(super) fn decode_body<B: Body>(
    path: &str,
    object: &ConfigValue,
    decoder: &mut Decoder<'_>,
) -> B {
    let mut body = B::start(object.place.clone());
    let registry = decoder.registry;
    let named = |key| named_as(key, B::KEYS).or_else(|| registry.claimed(path, key)).unwrap_or(key);
    for group in group_by(object.entries().unwrap_or_default(), named) {
        let key_path = join_path(path, group.key);
        if group.is_null() && B::KEYS.contains(&group.key) {
            continue;
        }
        if body.set(&key_path, &group, decoder) {
            continue;
        }
        if decoder.registry.claimed(path, group.key).is_some() {
            body.keep(&group);
            continue;
        }
        let hint = similar(group.key, B::KEYS)
            .map(|similar| format!("for {key_path}, did you mean {similar}?"));
        let place = group.entries.first().and_then(|entry| entry.key_place.clone());
        decoder.unknown.push(UnknownKey { path: key_path, place, hint });
    }
    body
}

/// The known key that differs by at most two letters from `key`.
pub(super) fn similar(key: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|candidate| (distance(key, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 2 && candidate.len() > 3)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance; far apart if the lengths are.
fn distance(left: &str, right: &str) -> usize {
    if left.len().abs_diff(right.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (position, l) in left.bytes().enumerate() {
        let mut diagonal = position;
        let mut before = position + 1;
        let mut next = vec![before];
        for (r, above) in right.bytes().zip(row.iter().skip(1)) {
            before = (diagonal + usize::from(l != r)).min(above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// Reads a boolean as leniently as configuration does: `1`, `"true"`, `[true]`.
#[cfg(feature = "api")]
pub(crate) fn read_flag(value: &ConfigValue) -> Option<bool> {
    bool::read(&lone(value).kind)
}
