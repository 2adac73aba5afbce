//! Versions of the tool, and conditions on them.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// The version of a tool: three numbers, and perhaps a pre-release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(semver::Version);

impl Version {
    /// Returns `true` for this release line and later ones.
    pub(crate) fn at_least(&self, major: u64, minor: u64) -> bool {
        (self.0.major, self.0.minor) >= (major, minor)
    }

    fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        semver::Version::parse(text.trim().trim_start_matches('v'))
            .map(Self)
            .map_err(|_error| Error::invalid(format!("not a version of three parts: {text:?}")))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The command that a binary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// `HashiCorp` Terraform.
    Terraform,
    /// `OpenTofu`.
    OpenTofu,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terraform => "Terraform",
            Self::OpenTofu => "OpenTofu",
        })
    }
}

/// Conditions on versions in Terraform's notation: `>= 0.13.0, <= 1.14.3`.
///
/// A pre-release is accepted only where a condition names one of the same version.
///
/// ```
/// use cts_driver_terraform::{Version, VersionConstraint};
///
/// let constraint: VersionConstraint = ">= 0.13.0, <= 1.14.3".parse()?;
/// assert!(constraint.accepts(&"1.11.4".parse::<Version>()?));
/// assert!(!constraint.accepts(&"1.99.0".parse()?));
/// # Ok::<(), cts_driver_terraform::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionConstraint {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    operator: Operator,
    version: Version,
    /// Number of parts that were written.
    parts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Pessimistic,
}

impl VersionConstraint {
    /// Returns `true` if the version meets all conditions.
    pub fn accepts(&self, version: &Version) -> bool {
        self.conditions.iter().all(|condition| condition.accepts(version))
    }

    /// The constraint as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Default for VersionConstraint {
    fn default() -> Self {
        let known = |operator, major, minor, patch| Condition {
            operator,
            version: Version(semver::Version::new(major, minor, patch)),
            parts: 3,
        };
        Self {
            text: crate::REQUIRED_VERSION.to_owned(),
            conditions: vec![
                known(Operator::GreaterOrEqual, 0, 13, 0),
                known(Operator::LessOrEqual, 1, 14, 3),
            ],
        }
    }
}

impl FromStr for VersionConstraint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let conditions: Result<Vec<_>> = text.split(',').map(str::parse).collect();
        Ok(Self { text: text.trim().to_owned(), conditions: conditions? })
    }
}

impl fmt::Display for VersionConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    fn accepts(&self, version: &Version) -> bool {
        let same_release = |a: &Version, b: &Version| {
            (a.0.major, a.0.minor, a.0.patch) == (b.0.major, b.0.minor, b.0.patch)
        };
        if version.is_prerelease()
            && !(self.version.is_prerelease() && same_release(version, &self.version))
        {
            return false;
        }
        match self.operator {
            Operator::Equal => *version == self.version,
            Operator::NotEqual => *version != self.version,
            Operator::Greater => *version > self.version,
            Operator::GreaterOrEqual => *version >= self.version,
            Operator::Less => *version < self.version,
            Operator::LessOrEqual => *version <= self.version,
            Operator::Pessimistic => {
                *version >= self.version
                    && version.0.major == self.version.0.major
                    && (self.parts < 3 || version.0.minor == self.version.0.minor)
            }
        }
    }
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const OPERATORS: [(&str, Operator); 7] = [
            (">=", Operator::GreaterOrEqual),
            ("<=", Operator::LessOrEqual),
            ("~>", Operator::Pessimistic),
            ("!=", Operator::NotEqual),
            (">", Operator::Greater),
            ("<", Operator::Less),
            ("=", Operator::Equal),
        ];
        let text = text.trim();
        let (operator, rest) = OPERATORS
            .into_iter()
            .find_map(|(sign, operator)| Some((operator, text.strip_prefix(sign)?)))
            .unwrap_or((Operator::Equal, text));
        let rest = rest.trim();
        let parts = rest.split('.').count();
        let padding = ".0".repeat(3_usize.saturating_sub(parts));
        let version = format!("{rest}{padding}").parse().map_err(|_error| {
            Error::invalid(format!("not a version constraint: {text:?}; write as in \">= 1.0.0\""))
        })?;
        Ok(Self { operator, version, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::{Version, VersionConstraint};

    fn accepts(constraint: &str, version: &str) -> bool {
        let constraint: VersionConstraint = constraint.parse().unwrap();
        constraint.accepts(&version.parse::<Version>().unwrap())
    }

    #[test]
    fn the_default_is_what_generated_modules_require() {
        let default = VersionConstraint::default();
        assert_eq!(default, default.as_str().parse().unwrap());
    }

    #[test]
    fn conditions_mean_what_terraform_means() {
        for (constraint, yes, no) in [
            (">= 0.13.0, <= 1.14.3", "1.14.3", "1.14.4"),
            (">= 0.13.0, <= 1.14.3", "0.13.0", "0.12.31"),
            (">= 0.13.0", "1.0.0", "1.0.0-beta1"),
            (">= 1.0.0-beta1", "1.0.0-beta2", "1.1.0-beta1"),
            ("~> 1.2", "1.9.0", "2.0.0"),
            ("~> 1.2.3", "1.2.9", "1.3.0"),
            ("1.2.3", "1.2.3", "1.2.4"),
            ("!= 1.2.3", "1.2.4", "1.2.3"),
            ("> 1", "1.0.1", "1.0.0"),
            ("< 2", "1.9.9", "2.0.0"),
        ] {
            assert!(accepts(constraint, yes), "{constraint} {yes}");
            assert!(!accepts(constraint, no), "{constraint} {no}");
        }
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in ["", ">=", "latest", ">= 1.0, x", "=> 1.0"] {
            assert!(text.parse::<VersionConstraint>().is_err(), "{text:?}");
        }
    }
}
