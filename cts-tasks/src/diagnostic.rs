use std::{fmt, ops::Range, path::PathBuf, sync::Arc};

/// The text of one configuration file, kept so that a diagnostic can point into it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The path as it was given.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
}

/// A range of a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    source: Arc<Source>,
    range: Range<usize>,
}

impl Place {
    /// Points at the bytes `range` of `source`; a range past the end is cut.
    pub fn new(source: Arc<Source>, range: Range<usize>) -> Self {
        let end = range.end.min(source.text.len());
        Self { range: range.start.min(end)..end, source }
    }

    /// The file.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The bytes of the file's text.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Line and column of the start, counted from 1; columns count characters.
    pub fn line_column(&self) -> (usize, usize) {
        let before = self.source.text.get(..self.range.start).unwrap_or(&self.source.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_column();
        write!(f, "{}:{line}:{column}", self.source.path.display())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

/// How bad a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration works, but the operator should know something.
    Warning,
    /// The configuration cannot be used.
    Error,
}

/// One finding about the configuration: what, where, and what to do.
///
/// Messages never hold the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in the specified words where there are some.
    pub message: String,
    /// Where; `None` when no file is to blame (a flag, the environment).
    pub place: Option<Place>,
    /// Further places of the same finding.
    pub also: Vec<Place>,
    /// What to do about it.
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

/// The line of a place, with what is meant underlined.
fn excerpt(place: &Place) -> String {
    let (line, column) = place.line_column();
    let text = place.source.text.lines().nth(line - 1).unwrap_or_default();
    let start = column - 1;
    // A long line is shown from a little before the place on.
    let skipped = if start > MAX_EXCERPT / 2 { start - 20 } else { 0 };
    // Columns must line up, whatever a terminal makes of tabs and escapes.
    let shown: String = text
        .chars()
        .skip(skipped)
        .take(MAX_EXCERPT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let meant = place.source.text.get(place.range()).unwrap_or_default();
    let meant = meant.lines().next().unwrap_or_default().chars().count();
    let width = meant.clamp(1, shown.chars().count().saturating_sub(start - skipped).max(1));
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(start - skipped);
    format!(
        "{margin}--> {place}\n{margin} |\n{number} | {}\n{margin} | {indent}{}",
        shown.trim_end(),
        "^".repeat(width),
    )
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
