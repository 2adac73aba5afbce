//! How commands reach a running daemon: flags, then the environment, then defaults.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::client::{self, Client, ClientConfig};
use secrecy::SecretString;

use crate::program::arguments::{ConnectionFlags, go_bool};

/// Environment variables by name; `None` also for one that is empty.
pub(crate) type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// The environment of the process.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A client for commands.
///
/// # Errors
///
/// What of flags and environment cannot be used, and what to do about it.
pub(crate) fn commands_client(
    flags: &ConnectionFlags,
    environment: Environment<'_>,
) -> Result<Client, String> {
    let settings = settings(flags, environment)?;
    Client::new(&settings).map_err(|error| match error {
        client::Error::Config { setting: "address", problem } => format!(
            "{problem}\nThe address is '{}'; it should be like http://localhost:8558, and comes \
             from -http-addr or CTS_ADDRESS.",
            settings.address
        ),
        error => error.to_string(),
    })
}

/// A client for a shell that waits for candidates.
pub(crate) fn impatient_client(environment: Environment<'_>) -> Result<Client, String> {
    let mut settings = settings(&ConnectionFlags::default(), environment)?;
    settings.connect_timeout = Duration::from_secs(1);
    settings.request_timeout = Some(Duration::from_secs(2));
    Client::new(&settings).map_err(|error| error.to_string())
}

fn settings(flags: &ConnectionFlags, environment: Environment<'_>) -> Result<ClientConfig, String> {
    let file = |flag: &Option<PathBuf>, name| {
        flag.clone().or_else(|| environment(name).map(PathBuf::from))
    };
    let mut settings = ClientConfig::default();
    let address = flags.http_addr.clone().or_else(|| environment("CTS_ADDRESS"));
    settings.address = address.unwrap_or(settings.address);
    if let Some(port) = flags.port {
        settings.address = with_port(&settings.address, port);
    }
    settings.tls.ca_file = file(&flags.ca_cert, "CTS_CACERT");
    settings.tls.ca_path = file(&flags.ca_path, "CTS_CAPATH");
    settings.tls.client_cert = file(&flags.client_cert, "CTS_CLIENT_CERT");
    settings.tls.client_key = file(&flags.client_key, "CTS_CLIENT_KEY");
    settings.tls.verify = match (flags.ssl_verify, environment("CTS_SSL_VERIFY")) {
        (Some(verify), _) => verify,
        (None, Some(text)) => go_bool(&text).map_err(|why| format!("CTS_SSL_VERIFY: {why}"))?,
        (None, None) => true,
    };
    settings.token = match file(&flags.token_file, "CTS_TOKEN_FILE") {
        Some(path) => Some(token(&path)?),
        None => environment("CTS_TOKEN").map(SecretString::from),
    };
    Ok(settings)
}

fn token(path: &Path) -> Result<SecretString, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read the token file {}: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("the token file {} is empty", path.display())),
        token => Ok(token.into()),
    }
}

/// `address` with another port, or with one at all.
fn with_port(address: &str, port: u16) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let rest = rest.trim_end_matches('/');
    // The last colon is the port's, unless it stands within an IPv6 address.
    let host = match rest.rsplit_once(':') {
        Some((host, last)) if !last.contains(']') => host,
        _ => rest,
    };
    format!("{scheme}://{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(
        flags: &ConnectionFlags,
        variables: &[(&str, &str)],
    ) -> Result<ClientConfig, String> {
        settings(flags, &|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_flag_counts_before_the_environment_and_that_before_the_default() {
        let mut flags = ConnectionFlags::default();
        let default = resolved(&flags, &[]).unwrap();
        assert_eq!(default.address, "http://localhost:8558");
        assert!(default.tls.verify && default.token.is_none());

        let variables = [
            ("CTS_ADDRESS", "https://sync:1"),
            ("CTS_CACERT", "/env/ca"),
            ("CTS_CAPATH", "/env/cas"),
            ("CTS_CLIENT_CERT", "/env/cert"),
            ("CTS_CLIENT_KEY", "/env/key"),
            ("CTS_SSL_VERIFY", "false"),
        ];
        let found = resolved(&flags, &variables).unwrap();
        assert_eq!(found.address, "https://sync:1");
        let tls = &found.tls;
        let paths = [&tls.ca_file, &tls.ca_path, &tls.client_cert, &tls.client_key];
        let expected = ["/env/ca", "/env/cas", "/env/cert", "/env/key"];
        for (path, expected) in paths.into_iter().zip(expected) {
            assert_eq!(path.as_deref(), Some(Path::new(expected)));
        }
        assert!(!tls.verify);

        flags.http_addr = Some("http://other:2".to_owned());
        flags.ca_cert = Some("/flag/ca".into());
        flags.ssl_verify = Some(true);
        let found = resolved(&flags, &variables).unwrap();
        assert_eq!(found.address, "http://other:2");
        assert_eq!(found.tls.ca_file.as_deref(), Some(Path::new("/flag/ca")));
        assert!(found.tls.verify);
    }

    #[test]
    fn a_port_takes_the_place_of_the_address_s() {
        for (address, expected) in [
            ("http://localhost:8558", "http://localhost:1"),
            ("https://sync", "https://sync:1"),
            ("http://[::1]:8558/", "http://[::1]:1"),
            ("http://[::1]", "http://[::1]:1"),
        ] {
            assert_eq!(with_port(address, 1), expected);
        }
    }

    #[test]
    fn a_token_is_read_from_its_file_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "s3cr3t\n").unwrap();
        let flags = ConnectionFlags { token_file: Some(path.clone()), ..Default::default() };
        let found = resolved(&flags, &[("CTS_TOKEN", "other")]).unwrap();
        assert!(!format!("{found:?}").contains("s3cr3t"));
        let token = found.token.unwrap();
        assert_eq!(secrecy::ExposeSecret::expose_secret(&token), "s3cr3t");
        fs::write(&path, "\n").unwrap();
        assert!(resolved(&flags, &[]).unwrap_err().contains("empty"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let flags = ConnectionFlags::default();
        let error = resolved(&flags, &[("CTS_SSL_VERIFY", "perhaps")]).unwrap_err();
        assert!(error.contains("CTS_SSL_VERIFY") && error.contains("perhaps"), "{error}");
        for (address, expected) in [
            ("localhost:8558", "unknown protocol scheme: "),
            ("ftp://localhost", "unknown protocol scheme: ftp"),
            ("http://", "invalid address, host value is empty"),
        ] {
            let flags = ConnectionFlags { http_addr: Some(address.into()), ..Default::default() };
            let error = commands_client(&flags, &|_| None).unwrap_err();
            assert!(error.starts_with(expected), "{address}: {error}");
        }
        let flags = ConnectionFlags { client_cert: Some("/a".into()), ..Default::default() };
        let error = commands_client(&flags, &|_| None).unwrap_err();
        assert_eq!(error, "both client cert and client key must be provided");
    }
}
