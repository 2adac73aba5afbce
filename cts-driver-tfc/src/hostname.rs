//! The address of the platform, from the setting `hostname` to the URI of a request.

use std::{fmt, str::FromStr};

use http::{Uri, uri::Authority};

use crate::{Error, Result};

/// Address of the platform: `https://app.terraform.io` or a Terraform Enterprise.
///
/// ```
/// use cts_driver_tfc::Hostname;
///
/// let host: Hostname = "tfe.example.com/".parse()?;
/// assert_eq!(host.to_string(), "https://tfe.example.com");
/// # Ok::<(), cts_driver_tfc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hostname {
    scheme: &'static str,
    authority: Authority,
    /// Host that the TLS certificate is checked against in place of `authority`.
    server_name: Option<Authority>,
}

impl Default for Hostname {
    /// Returns the address of HCP Terraform.
    fn default() -> Self {
        let authority = Authority::from_static("app.terraform.io");
        Self { scheme: "https", authority, server_name: None }
    }
}

impl FromStr for Hostname {
    type Err = Error;

    /// Reads a host with or without scheme; without one it is `https`.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |problem: &str| Error::Setting {
            setting: "hostname",
            problem: format!("{problem}; write it like \"https://app.terraform.io\""),
        };
        let text = text.trim();
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => ("https", rest),
            // For tests and proxies on this machine; the setting is the operator's decision.
            Some(("http", rest)) => ("http", rest),
            Some(_) => return Err(refuse("the scheme must be https or http")),
            None => ("https", text),
        };
        let rest = rest.trim_end_matches('/');
        // They would end up in logs, where the address is shown.
        if rest.contains('@') {
            return Err(refuse("credentials cannot stand in it"));
        }
        // Paths are fixed by the API.
        if rest.contains(['/', '?', '#']) {
            return Err(refuse("only a host and a port can stand in it"));
        }
        let authority: Authority =
            rest.parse().map_err(|_error| refuse(&format!("{rest:?} is no host")))?;
        if authority.host().is_empty() {
            return Err(refuse("there is no host in it"));
        }
        Ok(Self { scheme, authority, server_name: None })
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

impl Hostname {
    /// Returns the host with its port, if it has one.
    pub(crate) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the host without port.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// Returns `true` for an address of this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        // `http` keeps the brackets of an IPv6 address.
        let host = self.host().trim_matches(['[', ']']);
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(crate) fn with_server_name(&self, name: &str) -> Result<Self> {
        // The port goes along: the name takes the place of the whole authority.
        let with_port = match self.authority.port() {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        };
        let server_name = with_port.parse().map_err(|_error| Error::Setting {
            setting: "tls.server_name",
            problem: format!("{name:?} is no name of a host"),
        })?;
        Ok(Self { server_name: Some(server_name), ..self.clone() })
    }

    /// Returns the same address, with the name that TLS is to check.
    pub(crate) fn addressed(&self, uri: Uri) -> Uri {
        let Some(name) = &self.server_name else { return uri };
        let mut parts = uri.clone().into_parts();
        parts.authority = Some(name.clone());
        Uri::from_parts(parts).unwrap_or(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::Hostname;

    #[test]
    fn a_host_is_taken_with_and_without_scheme() {
        for (text, expected) in [
            ("app.terraform.io", "https://app.terraform.io"),
            ("https://tfe.example.com//", "https://tfe.example.com"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            (" tfe:8443 ", "https://tfe:8443"),
            ("[::1]:80", "https://[::1]:80"),
        ] {
            assert_eq!(text.parse::<Hostname>().unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(Hostname::default().to_string(), "https://app.terraform.io");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["", "ftp://x", "https://", "x/api", "u:p@x", "a b", "x?y", "https:///x"] {
            let error = text.parse::<Hostname>().unwrap_err();
            assert!(error.to_string().contains("hostname: "), "{text}: {error}");
        }
    }
}
