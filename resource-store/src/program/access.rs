//! Who may reach the server and do what: certificates, tokens, limits.
//!
//! The files of certificates and tokens are read again when they change, so that
//! a new certificate or a revoked token needs no restart.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    acl::{AclError, Authorization, FileTokens, Resolved},
    pb::Tenancy,
    server::{ServerConfig, ServerTls, TlsHandle},
    service::ServiceBuilder,
};
use async_trait::async_trait;
use clap::Args;
use consul_watch::{BoxError, GoDuration};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::{
    consul_acl::ConsulAcl,
    files::{self, read, told},
};

/// Number of descriptors that are kept for other things than connections.
const OTHER_DESCRIPTORS: usize = 128;

#[derive(Debug, Args)]
pub(crate) struct AccessOptions {
    /// The certificate to show to clients, in PEM, followed by those between it
    /// and the root; read again when the file changes
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The certificates that sign those of clients, in PEM: clients without one
    /// are refused
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) client_ca: Option<PathBuf>,
    /// The file of tokens and what each may do, in JSON, readable by its owner
    /// only; read again when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "consul_acl")]
    pub(crate) tokens: Option<PathBuf>,
    /// Has the Consul at this address say what a token may do, as
    /// `http://127.0.0.1:8500`; the token in `CONSUL_HTTP_TOKEN` needs acl:read
    #[arg(long, value_name = "URL")]
    pub(crate) consul_acl: Option<String>,
    /// Serves beyond this machine also without TLS or without tokens
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// Upper bound of connections at a time; the limit of open files lowers it
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    pub(crate) max_connections: usize,
    /// Upper bound of connections of one address, or of one IPv6 network of 64
    /// bits [default: 1024, or half of what --max-connections comes to]
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_connections_per_address: Option<usize>,
    /// Time without a call and a watch after which a connection ends
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(crate) idle_timeout: GoDuration,
    /// Upper bound of the bodies of requests under way, in MiB, of which one
    /// address gets a quarter
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub(crate) max_body_memory: u32,
    /// Upper bound of watches at a time
    #[arg(long, value_name = "COUNT", default_value_t = 50_000)]
    pub(crate) max_watches: usize,
    /// Logs each call: who, from where, what, and what came of it
    #[arg(long)]
    pub(crate) audit: bool,
}

/// Gives the number of files that this process may have open, after raising it as
/// far as it may.
fn descriptors() -> usize {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
            return usize::try_from(if raised { hard } else { soft }).unwrap_or(usize::MAX);
        }
    }
    usize::MAX
}

impl AccessOptions {
    pub(crate) fn apply(&self, config: &mut ServerConfig) -> Result<(), BoxError> {
        config.tls = self.read_tls()?;
        config.allow_insecure = self.allow_insecure;
        // What a connection does not need is for files, Raft, etcd and Consul.
        let others = OTHER_DESCRIPTORS.min(descriptors() / 2);
        let possible = descriptors().saturating_sub(others);
        if possible < self.max_connections {
            tracing::warn!(
                limit.files = descriptors(),
                "the limit of open files allows {possible} connections, not {}",
                self.max_connections
            );
        }
        config.max_connections = self.max_connections.min(possible);
        config.max_connections_per_address =
            self.max_connections_per_address.unwrap_or_else(|| {
                config.max_connections_per_address.min(config.max_connections.div_ceil(2))
            });
        config.idle_timeout = self.idle_timeout.into();
        config.max_body_memory = usize::try_from(self.max_body_memory).unwrap_or(usize::MAX) << 20;
        config.max_watches = self.max_watches;
        Ok(())
    }

    fn read_tls(&self) -> Result<Option<ServerTls>, BoxError> {
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(None) };
        let mut tls = ServerTls::new(read(cert)?, read(key)?.into());
        tls.client_ca_pem = self.client_ca.as_deref().map(read).transpose()?;
        Ok(Some(tls))
    }

    /// Has the service ask for tokens, where there is somebody to ask about
    /// them.
    pub(crate) fn guard(
        &self,
        service: ServiceBuilder,
    ) -> Result<(ServiceBuilder, Option<Arc<Tokens>>), BoxError> {
        if let Some(url) = &self.consul_acl {
            return Ok((service.authorization(ConsulAcl::new(url)?), None));
        }
        let Some(path) = &self.tokens else { return Ok((service, None)) };
        let tokens = Arc::new(Tokens::read(path)?);
        Ok((service.authorization(Shared(Arc::clone(&tokens))), Some(tokens)))
    }

    /// Reads the files again when they change, until `stop`.
    pub(crate) async fn follow_files(
        self,
        tls: Option<TlsHandle>,
        tokens: Option<Arc<Tokens>>,
        stop: CancellationToken,
    ) {
        let named = [&self.cert, &self.key, &self.client_ca, &self.tokens];
        let named = named.into_iter().flatten().cloned().collect();
        let read_again = || {
            if let Some(handle) = &tls {
                let replaced = self.read_tls().and_then(|tls| match tls {
                    Some(tls) => Ok(handle.replace(&tls)?),
                    None => Ok(()),
                });
                told("certificates", replaced);
            }
            if let Some(tokens) = &tokens {
                told("tokens", tokens.read_again());
            }
        };
        files::follow(named, stop, read_again).await;
    }
}

/// The tokens of a file.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    current: RwLock<Arc<FileTokens>>,
}

impl Tokens {
    fn read(path: &Path) -> Result<Self, BoxError> {
        let current = RwLock::new(Arc::new(read_tokens(path)?));
        Ok(Self { path: path.to_owned(), current })
    }

    fn read_again(&self) -> Result<(), BoxError> {
        let tokens = Arc::new(read_tokens(&self.path)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        Ok(())
    }

    fn current(&self) -> Arc<FileTokens> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read_tokens(path: &Path) -> Result<FileTokens, BoxError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let unreadable = |error| format!("{} cannot be read: {error}", path.display());
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = format!(
                "{} holds secrets and can be read by others (mode {:03o}): chmod 600 it",
                path.display(),
                mode & 0o777
            );
            return Err(text.into());
        }
    }
    let tokens = FileTokens::parse(&read(path)?);
    Ok(tokens.map_err(|error| format!("{}: {error}", path.display()))?)
}

/// The tokens as the service asks about them.
#[derive(Debug)]
struct Shared(Arc<Tokens>);

#[async_trait]
impl Authorization for Shared {
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        tenancy: Option<&Tenancy>,
    ) -> Result<Resolved, AclError> {
        self.0.current().resolve(token, tenancy).await
    }
}
