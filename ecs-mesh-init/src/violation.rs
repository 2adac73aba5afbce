//! Violations of the configuration's schema, rendered as upstream's `go-multierror` lists them.

use std::fmt;

/// Violation of one rule of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Path such as `proxy.upstreams.0`, or `(root)`.
    pub path: String,
    /// Description in the words of upstream's schema checker.
    pub problem: String,
}

impl Violation {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// All violations of a configuration; never empty inside an error.
///
/// `Display` is upstream's list: `2 errors occurred:`, then a line for each.
///
/// Source: consul-ecs 0.10 `config/config.go`, hashicorp/go-multierror 1.1 `format.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    pub(crate) fn new(violations: Vec<Violation>) -> Self {
        Self(violations)
    }

    /// Iterates over the violations in the order of the schema.
    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.0.iter()
    }

    /// Returns the number of violations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, plural) = (self.0.len(), if self.0.len() == 1 { "" } else { "s" });
        write!(f, "{count} error{plural} occurred:")?;
        self.0.iter().try_for_each(|violation| write!(f, "\n\t* {violation}"))
    }
}
