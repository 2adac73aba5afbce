//! A position in a text that is parsed.

use std::{ops::Range, sync::Arc};

use crate::{Diagnostic, Place, Source};

/// Limit of the nesting of lists, objects and blocks.
pub(super) const MAX_DEPTH: usize = 64;

/// A syntax error: the place at which the text stops making sense, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) range: Range<usize>,
    pub(super) message: String,
    pub(super) help: Option<&'static str>,
}

impl Fault {
    pub(super) fn new(range: Range<usize>, message: impl Into<String>) -> Self {
        Self { range, message: message.into(), help: None }
    }

    pub(super) fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    pub(super) fn too_deep(range: Range<usize>) -> Self {
        Self::new(range, format!("more than {MAX_DEPTH} levels of nesting"))
            .help("write it flatter")
    }

    pub(super) fn into_diagnostic(self, source: &Arc<Source>) -> Diagnostic {
        let mut diagnostic =
            Diagnostic::error(self.message).at(Place::new(Arc::clone(source), self.range));
        diagnostic.help = self.help.map(str::to_owned);
        diagnostic
    }
}

/// A position in a text, moved forward character by character.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the text that has not been read.
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Returns the text that has been read since `start`, a byte offset.
    pub(super) fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// The character after the next one.
    pub(super) fn peek_second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    /// Reads `text` if it comes next.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.position += text.len();
        }
        found
    }

    pub(super) fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> &'a str {
        let start = self.position;
        while self.peek().is_some_and(&mut wanted) {
            self.bump();
        }
        self.since(start)
    }

    /// Reads to the end of the line, and gives the line without its end.
    pub(super) fn take_line(&mut self) -> &'a str {
        let line = self.take_while(|c| c != '\n');
        self.bump();
        line.strip_suffix('\r').unwrap_or(line)
    }
}

/// The name of a character in a message.
pub(super) fn describe(character: Option<char>) -> String {
    match character {
        None => "the end of the file".to_owned(),
        Some('\n' | '\r') => "the end of the line".to_owned(),
        Some('"') => "'\"'".to_owned(),
        Some(c) if c.is_control() => format!("the character U+{:04X}", u32::from(c)),
        Some(c) => format!("\"{c}\""),
    }
}
