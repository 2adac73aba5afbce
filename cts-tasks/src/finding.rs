//! What is found where it is checked whether a deployment can start.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The outcome of one check, of [`crate::DriverFactory::check`] or of the command `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Name of the check, such as `driver terraform`.
    pub check: String,
    /// Outcome of the check.
    pub result: Verdict,
    /// The finding, and advice, in one line.
    pub detail: String,
}

impl Finding {
    /// Says what came of a check. Line breaks in `detail`, such as those of a tool's
    /// diagnostics, become spaces.
    pub fn new(check: impl Into<String>, result: Verdict, detail: impl AsRef<str>) -> Self {
        let words: Vec<&str> = detail.as_ref().split_whitespace().collect();
        Self { check: check.into(), result, detail: words.join(" ") }
    }
}

/// The meaning of a [`Finding`] for the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verdict {
    /// It is there and works.
    Ok,
    /// Nobody looked; the detail says why.
    Unchecked,
    /// It starts, and something may be missing later.
    Warning,
    /// It does not start, or a task cannot run.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Unchecked => "unchecked",
            Self::Warning => "warning",
            Self::Missing => "missing",
        })
    }
}
