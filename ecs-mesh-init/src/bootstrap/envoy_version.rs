//! Versions of Envoy, and which of them a release of Consul works with.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// A version of Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvoyVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

impl EnvoyVersion {
    /// Creates a version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for EnvoyVersion {
    type Err = Error;

    /// Parses `1.31.5`; a suffix after `-` is ignored.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::input(format!("{text:?} is not a version of Envoy such as 1.31.5"));
        let core = text.split('-').next().unwrap_or_default();
        let mut numbers = core.split('.').map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).ok_or_else(bad);
        let version = Self::new(next()?, next()?, next()?);
        if numbers.next().is_some() {
            return Err(bad());
        }
        Ok(version)
    }
}

/// Versions of Envoy that one release of Consul works with.
///
/// ```
/// use ecs_mesh_init::bootstrap::SupportedEnvoys;
///
/// let supported = SupportedEnvoys::of_consul(1, 20).unwrap();
/// assert!(supported.check("1.31.9".parse()?).is_ok());
/// assert!(supported.check("1.32.0".parse()?).is_err());
/// # Ok::<(), ecs_mesh_init::Error>(())
/// ```
///
/// Source: Consul 1.20 `envoyextensions/xdscommon/proxysupport.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupportedEnvoys {
    /// Oldest supported version.
    pub min: EnvoyVersion,
    /// Newest supported version; its later patches are supported too.
    pub max: EnvoyVersion,
    /// Versions in between that are known not to work.
    pub unsupported: Vec<EnvoyVersion>,
}

impl SupportedEnvoys {
    /// Returns the versions that a release of Consul supports; `None` for a release that is not
    /// known here.
    pub fn of_consul(major: u32, minor: u32) -> Option<Self> {
        let (min, max) = match (major, minor) {
            (1, 16) => (EnvoyVersion::new(1, 23, 0), EnvoyVersion::new(1, 26, 0)),
            (1, 17) => (EnvoyVersion::new(1, 24, 0), EnvoyVersion::new(1, 27, 0)),
            (1, 18) => (EnvoyVersion::new(1, 25, 0), EnvoyVersion::new(1, 28, 0)),
            (1, 19) => (EnvoyVersion::new(1, 26, 0), EnvoyVersion::new(1, 29, 0)),
            (1, 20) => (EnvoyVersion::new(1, 28, 0), EnvoyVersion::new(1, 31, 0)),
            _ => return None,
        };
        Some(Self { min, max, unsupported: Vec::new() })
    }

    /// Checks that Envoy in `version` works with this release of Consul.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] that names the version and the supported range.
    pub fn check(&self, version: EnvoyVersion) -> Result<()> {
        // Only major and minor count: Consul supports every patch of a minor version.
        let line = |version: EnvoyVersion| (version.major, version.minor);
        if self.unsupported.contains(&version) {
            return Err(Error::input(format!("Envoy version {version} is not supported")));
        }
        if line(version) < line(self.min) || line(version) > line(self.max) {
            return Err(Error::input(format!(
                "Envoy version {}.{}.x is not supported: {}.{} to {}.{} are",
                version.major,
                version.minor,
                self.min.major,
                self.min.minor,
                self.max.major,
                self.max.minor
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case MI53: versions of Envoy outside the range, and listed ones within it, are refused;
    /// patches are not.
    #[test]
    fn versions_within_the_range_and_their_patches_will_do() {
        let mut supported = SupportedEnvoys::of_consul(1, 20).unwrap();
        supported.unsupported.push(EnvoyVersion::new(1, 30, 1));
        let check =
            |text: &str| supported.check(text.parse().unwrap()).map_err(|error| error.to_string());
        assert_eq!(check("1.31.5"), Ok(()));
        assert_eq!(check("1.31.99"), Ok(()));
        assert!(check("1.27.9").unwrap_err().contains("1.27.x"));
        assert!(check("1.32.0").unwrap_err().contains("1.32.x"));
        assert!(check("1.30.1").unwrap_err().contains("1.30.1"));
        assert!(SupportedEnvoys::of_consul(1, 8).is_none());
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c"] {
            assert!(bad.parse::<EnvoyVersion>().is_err(), "{bad}");
        }
        assert_eq!("1.31.5-dev".parse::<EnvoyVersion>().unwrap().to_string(), "1.31.5");
    }
}
