//! Who may reach the server and do what: certificates, tokens, limits.
//!
//! The files of certificates and tokens are read again when they change, so that
//! a new certificate or a revoked token needs no restart.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use clap::Args;
use consul_watch::BoxError;
use resource_store::{
    acl::{AclError, Authorization, FileTokens, Resolved},
    pb::Tenancy,
    server::{ServerConfig, ServerTls, TlsHandle},
    service::ServiceBuilder,
};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::consul_acl::ConsulAcl;

/// How often files are compared with what was read of them.
const LOOK: Duration = Duration::from_secs(5);

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
    /// How many connections there may be at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    pub(crate) max_connections: usize,
    /// How many watches there may be at a time
    #[arg(long, value_name = "COUNT", default_value_t = 50_000)]
    pub(crate) max_watches: usize,
    /// Logs each call: who, from where, what, and what came of it
    #[arg(long)]
    pub(crate) audit: bool,
}

impl AccessOptions {
    pub(crate) fn apply(&self, config: &mut ServerConfig) -> Result<(), BoxError> {
        config.tls = self.read_tls()?;
        config.allow_insecure = self.allow_insecure;
        config.max_connections = self.max_connections;
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
        let mut shown = self.stamps();
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = stop.cancelled() => return,
            }
            let now = self.stamps();
            if now == shown {
                continue;
            }
            shown = now;
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
        }
    }

    /// What tells a changed file from one that is as it was.
    fn stamps(&self) -> Vec<Option<(std::time::SystemTime, u64)>> {
        let files = [&self.cert, &self.key, &self.client_ca, &self.tokens];
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        files.into_iter().map(|path| path.as_deref().and_then(stamp)).collect()
    }
}

fn told(what: &str, replaced: Result<(), BoxError>) {
    match replaced {
        Ok(()) => tracing::info!("{what} were read again"),
        Err(error) => tracing::error!(
            error = &*error as &dyn std::error::Error,
            "{what} cannot be used; what was read before stays in use"
        ),
    }
}

fn read(path: &Path) -> Result<String, BoxError> {
    let text = std::fs::read_to_string(path);
    Ok(text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?)
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
