//! A generated file with its name and mode.

use std::fmt;

/// A file of a root module.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GeneratedFile {
    /// Name in the task's directory.
    pub name: &'static str,
    /// All of its text.
    pub content: String,
    /// `true` if secrets can stand in it, so that only its owner may read it.
    pub secret: bool,
}

impl GeneratedFile {
    pub(crate) fn public(name: &'static str, content: String) -> Self {
        Self { name, content, secret: false }
    }

    pub(crate) fn secret(name: &'static str, content: String) -> Self {
        Self { name, content, secret: true }
    }
}

impl fmt::Debug for GeneratedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = if self.secret { "[redacted]" } else { &self.content };
        f.debug_struct("GeneratedFile")
            .field("name", &self.name)
            .field("content", &content)
            .field("secret", &self.secret)
            .finish()
    }
}
