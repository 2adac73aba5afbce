//! Reads values of the configuration as loosely as upstream's decoder, and collects every mistake
//! with its place.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use consul_watch::GoDuration;
use cts_tasks::{
    ConfigValue, Diagnostic, Literal, Place,
    config::{Entry, ValueKind},
};

use super::tags;

/// Reader of weakly typed values that collects every mistake on the way.
pub(super) struct Reader<'a> {
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
    warnings: &'a mut Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        environment: &'a dyn Fn(&str) -> Option<String>,
        warnings: &'a mut Vec<Diagnostic>,
    ) -> Self {
        Self { environment, warnings, errors: Vec::new() }
    }

    /// Returns the value, unless there were mistakes.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }

    pub(super) fn error(&mut self, entry: &Entry, message: impl Into<String>) {
        // Not every value has a place; that of the key is the next best.
        let place = entry.value.place.clone().or_else(|| entry.key_place.clone());
        self.error_at(place, message);
    }

    pub(super) fn error_at(&mut self, place: Option<Place>, message: impl Into<String>) {
        self.errors.push(Diagnostic::error(message).at(place));
    }

    /// Adds a mistake that stands at no one place.
    pub(super) fn problem(&mut self, message: String) {
        self.errors.push(Diagnostic::error(message));
    }

    pub(super) fn missing(&mut self, key: &str, help: &str) {
        let message = format!("{key} is required for driver \"terraform-cloud\"");
        self.errors.push(Diagnostic::error(message).help(help));
    }

    pub(super) fn warn(&mut self, entry: &Entry, message: &str, help: &str) {
        let warning = Diagnostic::warning(message).at(entry.key_place.clone()).help(help);
        self.warnings.push(warning);
    }

    pub(super) fn warn_at(&mut self, place: Option<Place>, message: &str) {
        self.warnings.push(Diagnostic::warning(message).at(place));
    }

    pub(super) fn unknown(&mut self, entry: &Entry, path: &str) {
        let file = entry.key_place.as_ref().map(|place| &place.source().path);
        let file = file.and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy();
        // In upstream's words, which people search for.
        let message = format!("'{file}' has invalid keys: {path}.{}", entry.key);
        self.errors.push(Diagnostic::error(message).at(entry.key_place.clone()));
    }

    /// Returns the entries of a block; a list of blocks counts as one.
    pub(super) fn entries<'v>(&mut self, value: &'v ConfigValue, what: &str) -> Vec<&'v Entry> {
        match &value.kind {
            ValueKind::Object(entries) => entries.iter().collect(),
            // HCL makes a list of blocks that are written twice; upstream merges them.
            ValueKind::List(items) => {
                items.iter().flat_map(|item| self.entries(item, what)).collect()
            }
            _ => {
                self.error_at(value.place.clone(), format!("{what} must be a block"));
                Vec::new()
            }
        }
    }

    /// Returns the text; `None` if it is empty or null.
    pub(super) fn string(&mut self, entry: &Entry) -> Option<String> {
        let text = match &entry.value.kind {
            ValueKind::String(text) => text.clone(),
            // `prefix = 1` is a text for upstream's decoder, too.
            ValueKind::Number(number) => number.to_string(),
            ValueKind::Null => return None,
            ValueKind::Bool(_) | ValueKind::List(_) | ValueKind::Object(_) => {
                self.error(entry, format!("{} must be a string", entry.key));
                return None;
            }
        };
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn boolean(&mut self, entry: &Entry, target: &mut bool) {
        let text = match &entry.value.kind {
            ValueKind::Bool(value) => {
                *target = *value;
                return;
            }
            ValueKind::String(text) => text.as_str(),
            ValueKind::Number(number) => number.as_str(),
            ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => "",
        };
        // The texts of Go's `strconv.ParseBool`.
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => *target = true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => *target = false,
            _ => self.error(entry, format!("{} must be true or false", entry.key)),
        }
    }

    /// Returns a whole number up to `most`.
    pub(super) fn number(&mut self, entry: &Entry, most: u32) -> Option<u32> {
        let number = self.string(entry)?.parse().ok().filter(|number| *number <= most);
        if number.is_none() {
            self.error(entry, format!("{} must be a whole number up to {most}", entry.key));
        }
        number
    }

    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        entry: &Entry,
        target: &mut T,
    ) {
        match self.string(entry).map(|text| text.parse()) {
            Some(Ok(value)) => *target = value,
            Some(Err(error)) => self.error(entry, format!("{}: {error}", entry.key)),
            None => {}
        }
    }

    pub(super) fn duration(&mut self, entry: &Entry, target: &mut Duration) {
        // Starts from the default, which stays if there is no value.
        let mut duration = GoDuration::new(*target);
        self.parsed(entry, &mut duration);
        *target = duration.get();
    }

    pub(super) fn tags(&mut self, entry: &Entry) -> Vec<String> {
        let items = match &entry.value.kind {
            ValueKind::List(items) => items.as_slice(),
            // A single text is a list of one, as for upstream's decoder.
            ValueKind::String(_) => std::slice::from_ref(&entry.value),
            _ => {
                self.error(entry, format!("{} must be a list of strings", entry.key));
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        for item in items {
            let ValueKind::String(text) = &item.kind else {
                self.error_at(item.place.clone(), format!("{} must hold strings", entry.key));
                continue;
            };
            match tags::tag(text) {
                Ok(tag) => found.push(tag),
                Err(problem) => self.error_at(
                    item.place.clone(),
                    format!("workspace tag in '{}' {problem}", entry.key),
                ),
            }
        }
        found
    }

    pub(super) fn required_providers(&mut self, entry: &Entry) -> BTreeMap<String, Literal> {
        let mut providers = BTreeMap::new();
        for provider in self.entries(&entry.value, &entry.key) {
            let value = provider.value.to_literal();
            // `aws = "~> 5.0"` is the short form of an object with a version.
            if matches!(value, Literal::String(_) | Literal::Map(_)) {
                providers.insert(provider.key.clone(), value);
            } else {
                let expected = "a version or an object with source and version";
                self.error(provider, format!("{} must be {expected}", provider.key));
            }
        }
        providers
    }
}
