//! Reads a block of the configuration entry by entry, and collects its mistakes.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use consul_watch::GoDuration;
use cts_tasks::{
    ConfigValue, Diagnostic, Literal, Place, ProviderBlock,
    config::{Entry, ValueKind},
};

use crate::{
    Result, Version, dynamic,
    root_module::{provider_argument, provider_name},
};

/// Reads weakly typed values and collects every mistake on the way.
#[derive(Debug, Default)]
pub(super) struct Reader {
    errors: Vec<Diagnostic>,
}

impl Reader {
    pub(super) fn error(&mut self, error: Diagnostic) {
        self.errors.push(error);
    }

    /// The value, unless there were mistakes.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }

    /// The entries of a block; a list of blocks counts as one.
    pub(super) fn entries<'a>(&mut self, value: &'a ConfigValue, what: &str) -> Vec<&'a Entry> {
        match &value.kind {
            ValueKind::Object(entries) => entries.iter().collect(),
            ValueKind::List(items) => {
                items.iter().flat_map(|item| self.entries(item, what)).collect()
            }
            _ => {
                self.error(
                    Diagnostic::error(format!("{what} must be a block")).at(value.place.clone()),
                );
                Vec::new()
            }
        }
    }

    /// Refuses a key that there is not, or not any more, with what to do.
    pub(super) fn unknown(&mut self, entry: &Entry, path: &str, help: Option<&str>) {
        let file = entry.key_place.as_ref().map(|place| &place.source().path);
        let file = file.and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy();
        let error = Diagnostic::error(format!("'{file}' has invalid keys: {path}.{}", entry.key))
            .at(entry.key_place.clone());
        self.error(match help {
            Some(help) => error.help(help),
            None => error,
        });
    }

    pub(super) fn boolean(&mut self, entry: &Entry, target: &mut bool) {
        let value = match &entry.value.kind {
            ValueKind::Bool(value) => Some(*value),
            ValueKind::Number(number) => Some(number.as_str() != "0"),
            ValueKind::String(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            },
            ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => None,
        };
        match value {
            Some(value) => *target = value,
            None => self.wrong_type(entry, "true or false"),
        }
    }

    /// The text; `None` when it is empty or none.
    pub(super) fn string(&mut self, entry: &Entry) -> Option<String> {
        let text = match &entry.value.kind {
            ValueKind::String(text) => text.clone(),
            ValueKind::Number(number) => number.to_string(),
            ValueKind::Bool(_) | ValueKind::Null | ValueKind::List(_) | ValueKind::Object(_) => {
                self.wrong_type(entry, "a string");
                return None;
            }
        };
        (!text.is_empty()).then_some(text)
    }

    /// An address with its scheme.
    pub(super) fn address(&mut self, entry: &Entry) -> Option<String> {
        let address = self.string(entry)?;
        if !address.starts_with("https://") && !address.starts_with("http://") {
            self.wrong_type(entry, "an address that begins with https:// or http://");
        }
        Some(address)
    }

    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        entry: &Entry,
        target: &mut T,
    ) {
        match self.string(entry).map(|text| text.parse()) {
            Some(Ok(value)) => *target = value,
            Some(Err(error)) => self.error(
                Diagnostic::error(format!("{}: {error}", entry.key)).at(entry.value.place.clone()),
            ),
            None => {}
        }
    }

    pub(super) fn duration(&mut self, entry: &Entry, target: &mut Duration) {
        let mut duration = GoDuration::new(*target);
        self.parsed(entry, &mut duration);
        *target = duration.get();
    }

    pub(super) fn exact_version(&mut self, entry: &Entry) -> Option<Version> {
        let text = self.string(entry)?;
        let version = text.parse().ok();
        if version.is_none() {
            self.error(
                Diagnostic::error(format!(
                    "provide the exact Terraform version to install: {text}"
                ))
                .at(entry.value.place.clone())
                .help("write all three parts, as in \"1.11.4\""),
            );
        }
        version
    }

    /// The bodies below a block's labels: `backend "consul" {}` or `{"backend": {"consul": {}}}`.
    pub(super) fn labelled<'a>(
        &mut self,
        entry: &'a Entry,
    ) -> Vec<(&'a Entry, BTreeMap<String, Literal>)> {
        let entries = self.entries(&entry.value, &entry.key);
        entries
            .into_iter()
            .map(|labelled| {
                let mut attributes = BTreeMap::new();
                for attribute in self.entries(&labelled.value, &labelled.key) {
                    attributes.insert(attribute.key.clone(), attribute.value.to_literal());
                }
                (labelled, attributes)
            })
            .collect()
    }

    pub(super) fn required_providers(&mut self, entry: &Entry) -> BTreeMap<String, Literal> {
        let mut providers = BTreeMap::new();
        for provider in self.entries(&entry.value, &entry.key) {
            let value = provider.value.to_literal();
            if matches!(value, Literal::String(_) | Literal::Map(_)) {
                providers.insert(provider.key.clone(), value);
            } else {
                self.wrong_type(provider, "a version or an object with source and version");
            }
        }
        providers
    }

    /// Names in a provider's block that Terraform is known to refuse.
    pub(super) fn provider_names(&mut self, block: &ProviderBlock) {
        let problems =
            block.arguments.keys().filter_map(|name| provider_argument(&block.name, name));
        for problem in provider_name(&block.name).into_iter().chain(problems) {
            self.error(Diagnostic::error(problem).at(block.place.clone()));
        }
    }

    /// Templates that cannot be read.
    pub(super) fn templates(&mut self, block: &ProviderBlock) {
        for problem in dynamic::problems(block) {
            self.error(Diagnostic::error(problem).at(block.place.clone()));
        }
    }

    fn wrong_type(&mut self, entry: &Entry, expected: &str) {
        self.error(
            Diagnostic::error(format!("{} must be {expected}", entry.key))
                .at(entry.value.place.clone()),
        );
    }
}

/// Returns the place of the value of the last entry with this name.
pub(super) fn place_of(body: &ConfigValue, key: &str) -> Option<Place> {
    match &body.kind {
        ValueKind::Object(entries) => {
            let entry = entries.iter().rev().find(|entry| entry.key == key)?;
            entry.value.place.clone()
        }
        ValueKind::List(items) => items.iter().rev().find_map(|item| place_of(item, key)),
        _ => None,
    }
}
