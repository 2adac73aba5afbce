//! Values of a file with their places, before anything is known of their meaning.

use std::{collections::BTreeMap, sync::Arc};

use super::{hcl, json};
use crate::{Diagnostic, Literal, Place, Source};

/// A raw value of a configuration file, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigValue {
    /// The value itself.
    pub kind: ValueKind,
    /// Place in a file; `None` when it comes from elsewhere (the environment, an
    /// API).
    pub place: Option<Place>,
}

/// The kinds of a [`ConfigValue`].
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// `null`, in JSON.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as its decimal text.
    Number(crate::Number),
    /// A string.
    String(String),
    /// A list.
    List(Vec<ConfigValue>),
    /// A block's body or an object: entries in the order of the file. A key may
    /// stand more than once, as blocks do.
    Object(Vec<Entry>),
}

/// An entry of an object or of a block's body.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Place of the key.
    pub key_place: Option<Place>,
    /// Labels between the key and the body of a block. Bodies that a
    /// [`crate::DriverKind`] gets have none: a label has become the only key
    /// of an object around the body, as in JSON.
    pub labels: Vec<String>,
    /// `true` if it is a block (`key { … }`) and not an attribute (`key = …`).
    pub block: bool,
    /// The value.
    pub value: ConfigValue,
}

impl ConfigValue {
    /// Reads a text that is held against no schema: JSON where the name of `source` ends
    /// in `.json`, HCL otherwise. Labels become keys: `a "b" { … }` is read as
    /// `a = { b = { … } }`.
    ///
    /// # Errors
    ///
    /// The first mistake with its place.
    pub fn parse(source: Source) -> Result<Self, Diagnostic> {
        let source = Arc::new(source);
        let is_json = source.path.extension().is_some_and(|extension| extension == "json");
        let read = if is_json { json::parse(&source)? } else { hcl::parse(&source)? };
        Ok(read.fold_labels())
    }

    /// Returns a block without entries.
    pub(crate) const fn empty_block() -> Self {
        Self { kind: ValueKind::Object(Vec::new()), place: None }
    }

    /// Returns the value of a key of an object or a block's body, the last if it stands
    /// more than once; `None` also of anything else.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries()?.iter().rfind(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// Returns the value of every entry of a key, in the order of the file: one for each
    /// block of that name. None of anything else than an object.
    pub fn get_all<'v>(&'v self, key: &'v str) -> impl Iterator<Item = &'v Self> {
        let entries = self.entries().unwrap_or_default().iter();
        entries.filter(move |entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns a string; `None` of anything else.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            ValueKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a boolean; `None` of anything else, also of `"true"` and `1`.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind {
            ValueKind::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a whole number; `None` of anything else, also of one out of range.
    pub fn as_i64(&self) -> Option<i64> {
        match &self.kind {
            ValueKind::Number(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }

    /// Returns a number, rounded; `None` of anything else.
    pub fn as_f64(&self) -> Option<f64> {
        match &self.kind {
            ValueKind::Number(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }

    /// Returns the items of a list; `None` of anything else.
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.kind {
            ValueKind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Makes an error that points at this value. The message must not hold the value, which
    /// may be a secret.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(message).at(self.place.clone())
    }

    /// Returns the kind's name for a message, such as `a string`; the value itself may be a secret.
    pub fn describe(&self) -> &'static str {
        match self.kind {
            ValueKind::Null => "null",
            ValueKind::Bool(_) => "a boolean",
            ValueKind::Number(_) => "a number",
            ValueKind::String(ref text) if text.is_empty() => "an empty string",
            ValueKind::String(_) => "a string",
            ValueKind::List(_) => "a list",
            ValueKind::Object(_) => "an object",
        }
    }

    /// Returns the entries of an object or a block's body; `None` of anything else.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            ValueKind::Object(entries) => Some(entries),
            _ => None,
        }
    }

    /// The objects that stand here: one, or a list of them. `None` if anything else does.
    pub(super) fn objects(&self) -> Option<Vec<&Self>> {
        match &self.kind {
            ValueKind::Object(_) => Some(vec![self]),
            ValueKind::List(items) => {
                items.iter().map(|item| item.entries().map(|_| item)).collect()
            }
            _ => None,
        }
    }

    /// Turns labels into keys: `a "b" { … }` becomes `a = { b = { … } }`, as JSON writes it.
    pub(super) fn fold_labels(self) -> Self {
        let kind = match self.kind {
            ValueKind::List(items) => {
                ValueKind::List(items.into_iter().map(Self::fold_labels).collect())
            }
            ValueKind::Object(entries) => {
                ValueKind::Object(entries.into_iter().map(Entry::fold_labels).collect())
            }
            scalar => scalar,
        };
        Self { kind, ..self }
    }

    /// Writes the keys of an object, not those below it, in lower case.
    pub(super) fn lower_keys(&mut self) {
        let ValueKind::Object(entries) = &mut self.kind else { return };
        for entry in entries {
            entry.key.make_ascii_lowercase();
        }
    }

    /// Puts blocks of one name that differ by their labels into one entry, as
    /// JSON writes them: `b "x" {}  b "y" {}` becomes `b = { x = {}, y = {} }`.
    pub(super) fn gather_labels(&mut self) {
        let ValueKind::Object(entries) = &mut self.kind else { return };
        let mut gathered: Vec<Entry> = Vec::new();
        for entry in std::mem::take(entries) {
            let labelled = entry.folded_label().is_some();
            let earlier = gathered.iter_mut().find(|earlier| labelled && earlier.key == entry.key);
            match (earlier.map(|earlier| &mut earlier.value.kind), entry.value.kind) {
                (Some(ValueKind::Object(bodies)), ValueKind::Object(more)) => bodies.extend(more),
                (_, kind) => {
                    let value = Self { kind, ..entry.value };
                    gathered.push(Entry { value, ..entry });
                }
            }
        }
        *entries = gathered;
    }

    /// The value without places. A block that stands once is a map, one that
    /// is repeated is a list of maps; lists stay lists, also those of one item.
    ///
    /// Deviation: upstream reads a list of one item as the item.
    pub fn to_literal(&self) -> Literal {
        match &self.kind {
            ValueKind::Null => Literal::Null,
            ValueKind::Bool(value) => Literal::Bool(*value),
            ValueKind::Number(number) => Literal::Number(number.clone()),
            ValueKind::String(text) => Literal::String(text.clone()),
            ValueKind::List(items) => Literal::List(items.iter().map(Self::to_literal).collect()),
            ValueKind::Object(entries) => Literal::Map(literals(entries)),
        }
    }

    /// Merges a later file's value over this one: objects key by key, anything
    /// else is replaced.
    pub(super) fn merge(&mut self, later: Self) {
        match (&mut self.kind, later) {
            (ValueKind::Object(entries), Self { kind: ValueKind::Object(later), .. }) => {
                merge_entries(entries, later);
            }
            (_, later) => *self = later,
        }
    }
}

impl From<serde_json::Value> for ConfigValue {
    /// The value without a place.
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let entry = |(key, value): (String, Json)| Entry {
            key,
            key_place: None,
            labels: Vec::new(),
            block: false,
            value: value.into(),
        };
        let kind = match json {
            Json::Null => ValueKind::Null,
            Json::Bool(value) => ValueKind::Bool(value),
            Json::Number(number) => match number.to_string().parse() {
                Ok(number) => ValueKind::Number(number),
                Err(crate::InvalidNumber { .. }) => ValueKind::String(number.to_string()),
            },
            Json::String(text) => ValueKind::String(text),
            Json::Array(items) => ValueKind::List(items.into_iter().map(Self::from).collect()),
            Json::Object(members) => ValueKind::Object(members.into_iter().map(entry).collect()),
        };
        Self { kind, place: None }
    }
}

/// Required providers are replaced as a whole, not merged into each other.
const REPLACED: &str = "required_providers";

fn merge_entries(entries: &mut Vec<Entry>, later: Vec<Entry>) {
    for entry in later {
        match entries.iter_mut().find(|earlier| earlier.key == entry.key) {
            Some(earlier) if entry.key == REPLACED => replace_entries(earlier, entry),
            Some(earlier) => earlier.value.merge(entry.value),
            None => entries.push(entry),
        }
    }
}

fn replace_entries(earlier: &mut Entry, later: Entry) {
    match (&mut earlier.value.kind, later.value.kind) {
        (ValueKind::Object(entries), ValueKind::Object(later)) => {
            entries.retain(|entry| later.iter().all(|replacing| replacing.key != entry.key));
            entries.extend(later);
        }
        (kind, later) => *kind = later,
    }
}

fn literals(entries: &[Entry]) -> BTreeMap<String, Literal> {
    let mut map: BTreeMap<String, (Literal, bool)> = BTreeMap::new();
    for entry in entries {
        let value = entry.labels.iter().rev().fold(entry.value.to_literal(), |inner, label| {
            Literal::Map(BTreeMap::from([(label.clone(), inner)]))
        });
        match map.remove(&entry.key) {
            Some((Literal::List(mut items), true)) if entry.block => {
                items.push(value);
                map.insert(entry.key.clone(), (Literal::List(items), true));
            }
            Some((first, false)) if entry.block => {
                map.insert(entry.key.clone(), (Literal::List(vec![first, value]), true));
            }
            _ => {
                map.insert(entry.key.clone(), (value, false));
            }
        }
    }
    map.into_iter().map(|(key, (value, _repeated))| (key, value)).collect()
}

impl Entry {
    /// The label that [`ConfigValue::fold_labels`] made the only key of the
    /// body: it stands where the block's own key does.
    pub(super) fn folded_label(&self) -> Option<&str> {
        match self.value.entries() {
            Some([inner]) if self.block && inner.block && inner.key_place == self.key_place => {
                Some(&inner.key)
            }
            _ => None,
        }
    }

    fn fold_labels(self) -> Self {
        let mut value = self.value.fold_labels();
        for label in self.labels.into_iter().rev() {
            let place = value.place.clone();
            let inner = Self {
                key: label,
                key_place: self.key_place.clone(),
                labels: Vec::new(),
                block: true,
                value,
            };
            value = ConfigValue { kind: ValueKind::Object(vec![inner]), place };
        }
        Self { labels: Vec::new(), value, ..self }
    }
}
