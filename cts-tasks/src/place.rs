//! Places in configuration files.

use std::{fmt, ops::Range, path::PathBuf, sync::Arc};

/// The text of one configuration file, kept so that a diagnostic can point into it.
///
/// `Debug` leaves out the text, which may hold secrets.
#[derive(PartialEq, Eq)]
pub struct Source {
    /// The path as it was given.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A range of a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    source: Arc<Source>,
    range: Range<usize>,
    /// `true` if the file holds values of variables, none of which is shown.
    variables: bool,
}

impl Place {
    /// Points at the bytes `range` of `source`; a range past the end is cut.
    pub fn new(source: Arc<Source>, range: Range<usize>) -> Self {
        let end = range.end.min(source.text.len());
        Self { range: range.start.min(end)..end, source, variables: false }
    }

    /// Points into a file of variables.
    #[cfg(feature = "engine")]
    pub(crate) fn of_variables(mut self) -> Self {
        self.variables = true;
        self
    }

    /// Returns `true` if it points into a file of variables.
    #[cfg(feature = "engine")]
    pub(crate) fn is_of_variables(&self) -> bool {
        self.variables
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
