//! The error of a file that is no resource, with its place.

use super::Span;

/// A file is no resource.
///
/// Prints as `<file>:<span>: <message>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    file: String,
    span: Option<Span>,
    message: String,
}

impl FileError {
    pub(super) fn new(file: &str, span: Option<Span>, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), span, message: message.into() }
    }

    /// The name of the file, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The part of the file that is to blame, if it is one part.
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    /// Returns the problem, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(span) = self.span {
            write!(f, "{span}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for FileError {}
