//! Addresses of Consul: scheme, host, port, path prefix or unix socket, parsed from their text.

use std::{net::IpAddr, path::PathBuf};

use crate::{Error, Result, config::ClientConfig};

/// Target of requests, as parsed from the configured address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) scheme: &'static str,
    /// Authority in the URL: `host:port`, or `localhost` for a socket.
    pub(crate) authority: String,
    /// Path before `/v1`, without a slash at its end.
    pub(crate) prefix: String,
    pub(crate) unix_socket: Option<PathBuf>,
    /// The host to connect to, when the URL holds the TLS server name instead.
    pub(crate) connect_to: Option<String>,
}

const SETTING: &str = "address";

impl Endpoint {
    pub(crate) fn parse(config: &ClientConfig) -> Result<Self> {
        let (scheme, rest) = match config.address.split_once("://") {
            None => ("http", config.address.as_str()),
            Some((scheme @ ("http" | "https" | "unix"), rest)) => (scheme, rest),
            Some((scheme, _rest)) => {
                return Err(Error::config(SETTING, format!("Unknown protocol scheme: {scheme}")));
            }
        };
        if scheme == "unix" {
            return Self::unix(rest);
        }
        // A plain http does not undo TLS that was asked for elsewhere.
        let scheme = if scheme == "https" || config.tls.enabled { "https" } else { "http" };
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let mut endpoint = Self {
            scheme,
            authority: host.to_owned(),
            prefix,
            unix_socket: None,
            connect_to: None,
        };
        endpoint.check(&config.address)?;
        if let Some(name) = config.tls.server_name.as_deref().filter(|_| scheme == "https") {
            endpoint.rename(name)?;
        }
        Ok(endpoint)
    }

    fn unix(path: &str) -> Result<Self> {
        if path.is_empty() {
            return Err(Error::config(SETTING, "unix:// needs the path of a socket"));
        }
        Ok(Self {
            scheme: "http",
            // As Consul's own client: strict servers reject a socket's path as the `Host`.
            authority: "localhost".to_owned(),
            prefix: String::new(),
            unix_socket: Some(PathBuf::from(path)),
            connect_to: None,
        })
    }

    fn check(&self, address: &str) -> Result<()> {
        let base = self.base();
        let parsed = base.parse::<http::Uri>().ok();
        let host = parsed.as_ref().and_then(http::Uri::host).unwrap_or_default();
        if host.is_empty() || self.authority.contains('@') {
            // The address may hold a password, also behind a slash too many: show only that it is
            // wrong when it has one.
            let shown = if address.contains('@') { "(with user)" } else { address };
            return Err(Error::config(
                SETTING,
                format!(
                    "{shown:?} is not an address; write host:port, http://host:port, https://host:port or unix:///path"
                ),
            ));
        }
        Ok(())
    }

    /// Puts the TLS server name into the URL and remembers whom to connect to.
    fn rename(&mut self, name: &str) -> Result<()> {
        let (host, port) = self.split_port();
        if host == name {
            return Ok(());
        }
        // An address in the URL would be connected to, and SNI knows no addresses (RFC 6066, 3).
        if name.parse::<IpAddr>().is_ok()
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        {
            return Err(Error::config("tls server name", format!("{name:?} is not a DNS name")));
        }
        // The host of the URL is what the handshake names (SNI), and what the certificate is
        // checked against.
        let authority = port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        self.connect_to = Some(host.trim_matches(['[', ']']).to_owned());
        self.authority = authority;
        Ok(())
    }

    fn split_port(&self) -> (String, Option<String>) {
        match self.authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
                (host.to_owned(), Some(port.to_owned()))
            }
            _ => (self.authority.clone(), None),
        }
    }

    /// Returns the beginning of every request's URL.
    pub(crate) fn base(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.prefix)
    }

    /// Returns the address of the peer as errors name it.
    pub(crate) fn name(&self) -> String {
        match &self.unix_socket {
            Some(path) => format!("unix://{}", path.display()),
            None => self.base(),
        }
    }

    pub(crate) fn is_loopback(&self) -> bool {
        let (host, _port) = self.split_port();
        let host = host.trim_matches(['[', ']']);
        self.unix_socket.is_some()
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str, change: impl FnOnce(&mut ClientConfig)) -> Result<Endpoint> {
        let mut config = ClientConfig { address: address.to_owned(), ..ClientConfig::default() };
        change(&mut config);
        Endpoint::parse(&config)
    }

    /// Spec: CW16
    #[test]
    fn forms_of_addresses() {
        for (address, base) in [
            ("127.0.0.1:8500", "http://127.0.0.1:8500"),
            ("http://[::1]:8500", "http://[::1]:8500"),
            ("https://1.2.3.4:5678/prefix", "https://1.2.3.4:5678/prefix"),
            ("http://a/b/c/", "http://a/b/c"),
            ("unix:///run/consul.sock", "http://localhost"),
        ] {
            assert_eq!(parse(address, |_| ()).unwrap().base(), base);
        }
        let socket = parse("unix:///run/consul.sock", |_| ()).unwrap();
        assert_eq!(socket.unix_socket, Some("/run/consul.sock".into()));
        assert_eq!(socket.name(), "unix:///run/consul.sock");
    }

    #[test]
    fn tls_that_was_asked_for_is_not_undone_by_http() {
        let endpoint = parse("http://a:1", |config| config.tls.enabled = true).unwrap();
        assert_eq!(endpoint.base(), "https://a:1");
    }

    #[test]
    fn bad_addresses_say_what_is_expected() {
        let unknown = parse("ftp://a", |_| ()).unwrap_err().to_string();
        assert!(unknown.contains("Unknown protocol scheme: ftp"), "{unknown}");
        for address in [
            "",
            "http://",
            "http:///x",
            "a b",
            "unix://",
            "http://u:planted@a:1",
            "http:///u:planted@a:1",
        ] {
            let error = parse(address, |_| ()).unwrap_err().to_string();
            assert!(!error.contains("planted"), "{error}");
        }
    }

    #[test]
    fn a_server_name_stands_in_the_url_and_the_address_is_connected_to() {
        let endpoint = parse("https://10.0.0.1:8501", |config| {
            config.tls.server_name = Some("server.dc1.consul".into());
        })
        .unwrap();
        assert_eq!(endpoint.base(), "https://server.dc1.consul:8501");
        assert_eq!(endpoint.connect_to.as_deref(), Some("10.0.0.1"));
        assert!(
            parse("https://a", |config| config.tls.server_name = Some("10.0.0.1".into())).is_err()
        );
        let plain = parse("http://a", |config| {
            config.tls.server_name = Some("b".into());
        })
        .unwrap();
        assert_eq!(plain.base(), "http://a");
    }
}
