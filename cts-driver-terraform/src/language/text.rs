//! A text that grows piece by piece.

use std::fmt::{self, Write as _};

use cts_tasks::Literal;

use super::{key, literal};

/// A text that grows piece by piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds what is formatted.
    pub(crate) fn add(&mut self, pieces: fmt::Arguments<'_>) {
        let written = self.0.write_fmt(pieces);
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }

    /// Adds a line `key = value`.
    pub(crate) fn attribute(&mut self, name: &str, value: &Literal) {
        self.add(format_args!("{} = {}\n", key(name), literal(value)));
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}
