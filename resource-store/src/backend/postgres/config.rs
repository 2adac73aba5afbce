//! How to reach and use a `PostgreSQL` database.

use std::{fmt, time::Duration};

use secrecy::SecretString;
use tokio_postgres::config::{Host, SslMode};

use crate::backend::{Error, Result};

/// Connection settings of a `PostgreSQL` database, and the schema in which
/// resources are kept there.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// Servers, each as `host:port`, `host`, or the folder of a Unix socket; the port is
    /// 5432 by default. Give a primary and its standbys in any order: the one that
    /// takes writes is used, and looked for again when a connection is lost.
    pub hosts: Vec<String>,
    /// Name of the database; `postgres` by default.
    pub database: String,
    /// Name of the role; `postgres` by default.
    pub user: String,
    /// Password of the role, where the server asks for one; none by default.
    pub password: Option<SecretString>,
    /// Name of the schema; `resource_store` by default. Stores in different
    /// schemas are apart.
    pub schema: String,
    /// Certificates. With them every connection uses TLS and the server is
    /// verified; without them, which is the default, none does.
    pub tls: Option<PostgresTls>,
    /// Upper bound of the connections that one backend has for reads and
    /// writes; 8 by default. Watches have one more, all together, and each
    /// snapshot and restore one of its own.
    pub connections: usize,
    /// Time limit of connecting to one host; 2 seconds by default.
    pub connect_timeout: Duration,
    /// Time limit of one statement, after which its connection is given up; 5
    /// seconds by default. Lists, and what watches begin with, have ten times as
    /// much, which is also the server's `statement_timeout`.
    pub attempt_timeout: Duration,
    /// Time limit of an operation with all its attempts; 15 seconds by default.
    pub timeout: Duration,
    /// By how many changes the watchers of one kind, or of one kind in one
    /// tenancy, may fall behind before they have to start again; 8192 by
    /// default.
    pub watch_buffer: usize,
    /// Number of changes that the database keeps for processes that lost their
    /// connection; 16,384 by default. The watches of one that missed more close.
    pub keep_changes: u32,
}

/// Certificates for a server that is reached over TLS, in PEM.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PostgresTls {
    /// The certificates that may sign those of the servers, whose names have to
    /// be those of [`PostgresConfig::hosts`].
    pub ca_pem: String,
    /// A certificate and its key, for a server that asks clients for one.
    pub identity_pem: Option<(String, SecretString)>,
}

impl PostgresTls {
    /// Trusts the servers whose certificates these sign.
    pub fn new(ca_pem: impl Into<String>) -> Self {
        Self { ca_pem: ca_pem.into(), identity_pem: None }
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password is a `SecretString`, which does not show itself.
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.hosts)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("schema", &self.schema)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl PostgresConfig {
    /// Reaches the database `postgres` as the role `postgres` on these servers.
    pub fn new<I, H>(hosts: I) -> Self
    where
        I: IntoIterator<Item = H>,
        H: Into<String>,
    {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            database: "postgres".to_owned(),
            user: "postgres".to_owned(),
            password: None,
            schema: "resource_store".to_owned(),
            tls: None,
            connections: 8,
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
            watch_buffer: 8192,
            keep_changes: 16_384,
        }
    }

    /// Reads a connection string as `psql` takes it:
    /// `postgres://user@host-1:5432,host-2:5432/database`, or
    /// `host=host-1,host-2 user=user dbname=database`. Certificates are given
    /// apart, in [`PostgresConfig::tls`].
    ///
    /// # Errors
    ///
    /// If it is malformed, names no host, or has a parameter that is given
    /// another way here. The text never shows the string.
    pub fn from_url(url: &str) -> Result<Self> {
        let parsed: tokio_postgres::Config = url.parse().map_err(|error| {
            // Its own text names the parameter, and its source what is wrong with it.
            misconfigured(&crate::error_chain::error_chain(&error as &tokio_postgres::Error))
        })?;
        if parsed.get_ssl_mode() == SslMode::Require {
            return Err(misconfigured(
                "sslmode=require: give the certificate of the authority that signs the servers' \
                 instead (`PostgresConfig::tls`), with which TLS is required and the server verified",
            ));
        }
        if !parsed.get_hostaddrs().is_empty() || parsed.get_options().is_some() {
            return Err(misconfigured("hostaddr and options are not taken"));
        }
        let mut config = Self::new(hosts_of(&parsed));
        if config.hosts.is_empty() {
            return Err(misconfigured("the connection string names no host"));
        }
        if let Some(user) = parsed.get_user() {
            user.clone_into(&mut config.user);
        }
        let database = parsed.get_dbname().unwrap_or(&config.user);
        config.database = database.to_owned();
        if let Some(password) = parsed.get_password() {
            let password = str::from_utf8(password)
                .map_err(|_not_text| misconfigured("the password is not UTF-8"))?;
            config.password = Some(password.to_owned().into());
        }
        if let Some(limit) = parsed.get_connect_timeout() {
            config.connect_timeout = *limit;
        }
        Ok(config)
    }

    /// Time limit of a statement that may be long.
    pub(super) fn long_timeout(&self) -> Duration {
        self.attempt_timeout.saturating_mul(10)
    }

    /// Describes the place for errors: addresses, database and role.
    pub(super) fn place(&self) -> String {
        format!(
            "PostgreSQL at {}, database {}, role {}, schema {}",
            self.hosts.join(","),
            self.database,
            self.user,
            self.schema
        )
    }
}

fn hosts_of(parsed: &tokio_postgres::Config) -> Vec<String> {
    let ports = parsed.get_ports();
    let named = parsed.get_hosts().iter().enumerate().map(|(place, host)| {
        let port = ports.get(place).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT);
        match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    });
    named.collect()
}

pub(super) const DEFAULT_PORT: u16 = 5432;

/// Splits `host:port`, `[address]:port` or `host`.
pub(super) fn split_host(text: &str) -> Result<(&str, u16)> {
    let malformed = |why: &str| misconfigured(&format!("the host {text:?}: {why}"));
    if text.contains("://") || text.contains('@') {
        // It may hold a password, which an error must not show.
        return Err(misconfigured(
            "a host is given as host:port; a connection string is read with \
             `PostgresConfig::from_url`",
        ));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| malformed("] is missing"))?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_error| malformed("its port is no port"))?,
        None => DEFAULT_PORT,
    };
    if host.is_empty() {
        return Err(malformed("it is empty"));
    }
    Ok((host, port))
}

pub(super) fn misconfigured(why: &str) -> Error {
    Error::failed("configuring the connection to PostgreSQL", why.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn connection_strings_are_read() {
        let config =
            PostgresConfig::from_url("postgres://keeper:pl4nted@a:1,b:2/resources").unwrap();
        assert_eq!(config.hosts, ["a:1", "b:2"]);
        assert_eq!((config.user.as_str(), config.database.as_str()), ("keeper", "resources"));
        assert_eq!(config.password.as_ref().unwrap().expose_secret(), "pl4nted");
        assert!(!format!("{config:?} {}", config.place()).contains("pl4nted"));

        let config = PostgresConfig::from_url("host=/run/pg user=me").unwrap();
        assert_eq!(config.hosts, ["/run/pg:5432"]);
        assert_eq!(config.database, "me", "as psql has it");
    }

    #[test]
    fn what_is_wrong_with_a_connection_string_is_said_without_it() {
        for (url, text) in [
            ("postgres://u:pl4nted@a:port/d", "port"),
            ("postgres://u:pl4nted@a/d?sslmode=require", "PostgresConfig::tls"),
            ("postgres://u:pl4nted@a/d?no_such=1", "no_such"),
            ("user=u password=pl4nted", "names no host"),
        ] {
            let error = PostgresConfig::from_url(url).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(text) && !shown.contains("pl4nted"), "{url}: {shown}");
            assert!(!error.is_retryable());
        }
    }

    #[test]
    fn hosts_are_split() {
        for (text, host, port) in [
            ("a", "a", 5432),
            ("a:1", "a", 1),
            ("[::1]:2", "::1", 2),
            ("::1", "::1", 5432),
            ("/run/pg:3", "/run/pg", 3),
        ] {
            assert_eq!(split_host(text).unwrap(), (host, port), "{text}");
        }
        for text in ["", ":1", "a:x", "[::1", "postgres://u:pl4nted@a"] {
            let error = split_host(text).unwrap_err().to_string();
            assert!(!error.contains("pl4nted"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(text in "\\PC{0,60}") {
            let _read = split_host(&text);
            let _read = PostgresConfig::from_url(&text);
            let _read = PostgresConfig::from_url(&format!("postgres://u:p@{text}"));
        }
    }
}
