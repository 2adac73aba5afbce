//! Findings about the configuration, and how they are shown.

use std::{fmt, ops::Range};

use crate::Place;

/// The severity of a [`Diagnostic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration works, but the operator should know something.
    Warning,
    /// The configuration cannot be used.
    Error,
}

/// A finding about the configuration: the problem, its place, and advice.
///
/// Neither messages nor excerpts hold the value of a secret: in an excerpt only
/// values under known keys that are no secrets' are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The problem, in upstream's words where it has some.
    pub message: String,
    /// Place of the problem; `None` when no file is to blame (a flag, the
    /// environment).
    pub place: Option<Place>,
    /// Further places of the same finding.
    pub also: Vec<Place>,
    /// Advice on how to mend it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A finding that makes the configuration unusable.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            place: None,
            also: Vec::new(),
            help: None,
        }
    }

    /// A finding that the operator should know.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// Adds where.
    #[must_use]
    pub fn at(mut self, place: impl Into<Option<Place>>) -> Self {
        self.place = place.into();
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The finding with excerpts of the files, on several lines of plain text,
    /// without a line break at its end.
    pub fn render(&self) -> String {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let mut text = format!("{severity}: {}", self.message);
        for place in self.place.iter().chain(&self.also) {
            text.push('\n');
            text.push_str(&excerpt(place));
        }
        if let Some(help) = &self.help {
            text.push_str("\n  = help: ");
            text.push_str(help);
        }
        text
    }
}

/// The longest piece of a line that is shown.
const MAX_EXCERPT: usize = 100;

/// Stands for what is not shown.
const MASK: &str = "[redacted]";

/// The line of a place, with what is meant underlined.
fn excerpt(place: &Place) -> String {
    let (line, _) = place.line_column();
    let Line { text, marked } = shown_line(place);
    // A long line is shown from a little before the place on.
    let skipped = if marked.start > MAX_EXCERPT / 2 { marked.start - 20 } else { 0 };
    let shown: String = text.chars().skip(skipped).take(MAX_EXCERPT).collect();
    let start = marked.start - skipped;
    let width = marked.len().clamp(1, shown.chars().count().saturating_sub(start).max(1));
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(start);
    format!(
        "{margin}--> {place}\n{margin} |\n{number} | {}\n{margin} | {indent}{}",
        shown.trim_end(),
        "^".repeat(width),
    )
}

/// The first line of a place without secrets, and the columns of what is meant.
struct Line {
    text: String,
    marked: Range<usize>,
}

fn shown_line(place: &Place) -> Line {
    let (text, range) = (place.source().text.as_str(), place.range());
    let masked = crate::config::masked(text, place.is_of_variables());
    let begin = text.get(..range.start).and_then(|before| before.rfind('\n'));
    let begin = begin.map_or(0, |newline| newline + 1);
    let mut shown = Line { text: String::new(), marked: 0..0 };
    let (mut column, mut start, mut end) = (0, None, 0);
    for (at, c) in text.get(begin..).unwrap_or_default().char_indices() {
        let at = begin + at;
        if c == '\n' {
            break;
        }
        // A mask is as long for every secret, so it does not tell the length.
        let mask = masked.iter().find(|range| range.contains(&at));
        let first = mask.is_some_and(|range| range.start == at || at == begin);
        let width = match mask {
            Some(_) if first => MASK.len(),
            Some(_) => 0,
            None => 1,
        };
        if at >= range.start && start.is_none() {
            // Within a mask, what is meant is the mask.
            start = Some(if width == 0 { column - MASK.len() } else { column });
        }
        match mask {
            Some(_) if first => shown.text.push_str(MASK),
            Some(_) => {}
            // Columns must line up, whatever a terminal makes of tabs and escapes.
            None => shown.text.push(if c.is_control() { ' ' } else { c }),
        }
        column += width;
        if at < range.end {
            end = column;
        }
    }
    let start = start.unwrap_or(column);
    shown.marked = start..end.max(start);
    shown
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}
