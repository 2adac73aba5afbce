//! The product and release that answers, which decide on what may be asked of it.

use std::str::FromStr;

use http::HeaderMap;

/// Product that answers, from the headers of any answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Product: `HCP Terraform` or `Terraform Enterprise`; empty on old ones.
    pub product: String,
    /// Version of the API, such as `2.6`; empty on old ones.
    pub api_version: String,
    /// Release of Terraform Enterprise; `None` for HCP Terraform.
    pub release: Option<TfeRelease>,
}

/// Release of Terraform Enterprise, such as `v202308-1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TfeRelease {
    month: u32,
    patch: u32,
}

impl TfeRelease {
    /// First release that knows tags.
    pub const TAGS: Self = Self { month: 202_108, patch: 1 };
}

impl FromStr for TfeRelease {
    type Err = ();

    /// Reads `v202308-1`; newer releases are numbered `1.0.0` and later.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().map_err(|_error: std::num::ParseIntError| ());
        if let Some((month, patch)) = text.strip_prefix('v').and_then(|rest| rest.split_once('-')) {
            return Ok(Self { month: number(month)?, patch: number(patch)? });
        }
        let mut parts = text.split('.');
        let (Some(major), Some(minor), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(());
        };
        // All of these came after the monthly ones.
        Ok(Self { month: number(major)?.checked_add(900_000).ok_or(())?, patch: number(minor)? })
    }
}

impl Server {
    /// Reads the headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            product: text("tfp-appname"),
            api_version: text("tfp-api-version"),
            release: text("x-tfe-version").parse().ok(),
        }
    }

    /// Returns `true` if workspaces can have tags.
    pub fn has_tags(&self) -> bool {
        // HCP Terraform names no release, and has them.
        self.release.is_none_or(|release| release >= TfeRelease::TAGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_month_and_number() {
        let release = |text: &str| text.parse::<TfeRelease>();
        assert!(release("v202010-2") < Ok(TfeRelease::TAGS));
        assert!(release("v202108-1") >= Ok(TfeRelease::TAGS));
        assert!(release("1.0.0") > release("v202507-1"));
        for text in ["", "v", "latest", "v2020", "4294967295.1.1"] {
            assert!(release(text).is_err(), "{text}");
        }
    }

    #[test]
    fn old_releases_have_no_tags() {
        let server = |version: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-tfe-version", version.parse().unwrap());
            Server::of(&headers)
        };
        assert!(!server("v202104-1").has_tags());
        assert!(server("v202202-1").has_tags());
        assert!(Server::of(&HeaderMap::new()).has_tags(), "HCP Terraform does not say");
    }
}
