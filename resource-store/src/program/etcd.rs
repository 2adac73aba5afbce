//! Resources in an etcd.

use std::path::{Path, PathBuf};

use crate::backend::etcd::{EtcdBackend, EtcdConfig, EtcdUser};
use clap::Args;
use consul_watch::BoxError;

/// The etcd to use, and the keys in it.
#[derive(Debug, Args)]
pub(crate) struct EtcdOptions {
    /// Keeps resources in the etcd at these addresses of members, separated by
    /// commas: host:port, http://host:port, or https://host:port
    #[arg(long, value_name = "ENDPOINT", value_delimiter = ',', conflicts_with = "data_dir")]
    pub(crate) etcd: Vec<String>,
    /// Prefix of the keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "resource-store/", requires = "etcd")]
    pub(crate) etcd_prefix: String,
    /// The user of etcd, whose password is in the variable `ETCD_PASSWORD`
    #[arg(long, value_name = "NAME", requires = "etcd")]
    pub(crate) etcd_user: Option<String>,
    /// The certificates that may sign those of the members
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// A certificate, for an etcd that asks clients for one
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_key"])]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_cert"])]
    pub(crate) etcd_key: Option<PathBuf>,
}

/// The backend in that etcd; none if none is given.
pub(crate) async fn open(options: &EtcdOptions) -> Result<Option<EtcdBackend>, BoxError> {
    if options.etcd.is_empty() {
        return Ok(None);
    }
    let mut config = EtcdConfig::new(options.etcd.iter().cloned());
    config.prefix.clone_from(&options.etcd_prefix);
    if let Some(name) = &options.etcd_user {
        // No argument, because others can see those.
        let password = std::env::var("ETCD_PASSWORD")
            .map_err(|error| format!("the password of the user {name}: ETCD_PASSWORD: {error}"))?;
        config.user = Some(EtcdUser { name: name.clone(), password: password.into() });
    }
    config.tls.ca_pem = options.etcd_ca.as_deref().map(read).transpose()?;
    if let (Some(certificate), Some(key)) = (&options.etcd_cert, &options.etcd_key) {
        config.tls.identity_pem = Some((read(certificate)?, read(key)?.into()));
    }
    Ok(Some(EtcdBackend::connect(&config).await?))
}

fn read(path: &Path) -> Result<String, BoxError> {
    Ok(std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?)
}
