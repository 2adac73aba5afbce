//! Diagnostics of the tool, as it prints them in JSON.

use std::fmt;

use serde::Deserialize;

/// A diagnostic of the tool, as its JSON gives it.
///
/// Source: Terraform 1.11, JSON output of `validate` and machine-readable UI.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[non_exhaustive]
pub struct ToolDiagnostic {
    /// `error` or `warning`.
    #[serde(default)]
    pub severity: String,
    /// Summary in a few words.
    #[serde(default)]
    pub summary: String,
    /// Details, and often what to do.
    #[serde(default)]
    pub detail: String,
    /// Place in a file, where there is one.
    #[serde(default)]
    range: Option<Range>,
    /// The text there.
    #[serde(default)]
    snippet: Option<Snippet>,
}

/// A place in one of the files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
struct Range {
    /// The file.
    #[serde(default)]
    filename: String,
    /// Beginning of the place.
    #[serde(default)]
    start: Position,
}

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
struct Position {
    /// The line, counted from 1.
    #[serde(default)]
    line: u64,
}

/// The text that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
struct Snippet {
    /// The block that it stands in.
    #[serde(default)]
    context: Option<String>,
    /// The code.
    #[serde(default)]
    code: String,
}

impl ToolDiagnostic {
    /// Replaces each text that the tool may have taken from its input.
    pub(crate) fn map_texts(&mut self, replaced: impl Fn(&mut String) -> String) {
        let code = self.snippet.as_mut().map(|snippet| &mut snippet.code);
        for text in [&mut self.summary, &mut self.detail].into_iter().chain(code) {
            *text = replaced(text);
        }
    }

    /// An error without a place.
    pub fn error(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            severity: "error".to_owned(),
            summary: summary.into(),
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// Returns the file and the line, counted from 1, that it points at, where it points at one.
    pub fn place(&self) -> Option<(&str, u64)> {
        self.range.as_ref().map(|range| (range.filename.as_str(), range.start.line))
    }

    /// Returns `true` for an error, `false` for a warning.
    pub fn is_error(&self) -> bool {
        self.severity == "error"
    }
}

impl fmt::Display for ToolDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.summary)?;
        if let Some(range) = &self.range {
            write!(f, "\non {} line {}", range.filename, range.start.line)?;
            if let Some(snippet) = &self.snippet {
                if let Some(context) = &snippet.context {
                    write!(f, ", in {context}")?;
                }
                write!(f, "\n{}:{}", range.start.line, snippet.code)?;
            }
        }
        if !self.detail.is_empty() {
            write!(f, "\n{}", self.detail.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ToolDiagnostic;

    fn read(json: &str) -> ToolDiagnostic {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_finding_tells_severity_place_code_and_detail() {
        let diagnostic = read(
            r#"{"severity":"error","summary":"Bad","detail":"Do this.","range":{"filename":"main.tf",
            "start":{"line":7,"column":3,"byte":9},"end":{"line":7,"column":9,"byte":15}},
            "snippet":{"context":"module \"a\"","code":"  x = 1","start_line":7,
            "highlight_start_offset":2,"highlight_end_offset":3,"values":[]}}"#,
        );
        assert_eq!(
            diagnostic.to_string(),
            "error: Bad\non main.tf line 7, in module \"a\"\n7:  x = 1\nDo this."
        );
    }

    /// Spec: CTS40
    #[test]
    fn warnings_of_providers_have_no_snippet_or_no_place() {
        let bare = read(r#"{"severity":"warning","summary":"Old","detail":""}"#);
        assert_eq!(bare.to_string(), "warning: Old");
        let placed = read(
            r#"{"severity":"warning","summary":"Old","range":{"filename":"a.tf",
            "start":{"line":1}},"snippet":null}"#,
        );
        assert_eq!(placed.to_string(), "warning: Old\non a.tf line 1");
        assert!(!placed.is_error());
    }
}
