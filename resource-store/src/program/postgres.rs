//! Resources in a `PostgreSQL` database.

use std::path::{Path, PathBuf};

use crate::backend::postgres::{PostgresBackend, PostgresConfig, PostgresTls};
use clap::Args;
use consul_watch::BoxError;

/// The variable with the password, which `psql` reads, too.
const PASSWORD: &str = "PGPASSWORD";

/// The database to use, and the schema in it.
#[derive(Debug, Args)]
pub(crate) struct PostgresOptions {
    /// Keeps resources in this `PostgreSQL` database:
    /// postgres://USER@HOST:PORT,HOST:PORT/DATABASE, with a primary and its
    /// standbys in any order. The password is in the variable PGPASSWORD, or in
    /// a file
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "etcd"])]
    pub(crate) postgres: Option<String>,
    /// The schema with the tables, which are made if need be
    #[arg(long, value_name = "NAME", default_value = "resource_store", requires = "postgres")]
    pub(crate) postgres_schema: String,
    /// A file with the password, whose last line break is left out
    #[arg(long, value_name = "FILE", requires = "postgres")]
    pub(crate) postgres_password_file: Option<PathBuf>,
    /// The certificates that may sign those of the servers; with them every
    /// connection uses TLS
    #[arg(long, value_name = "FILE", requires = "postgres")]
    pub(crate) postgres_ca: Option<PathBuf>,
    /// A certificate, for a server that asks clients for one
    #[arg(long, value_name = "FILE", requires_all = ["postgres_ca", "postgres_key"])]
    pub(crate) postgres_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["postgres_ca", "postgres_cert"])]
    pub(crate) postgres_key: Option<PathBuf>,
}

/// The backend in that database; none if none is given.
pub(crate) async fn open(options: &PostgresOptions) -> Result<Option<PostgresBackend>, BoxError> {
    let Some(url) = &options.postgres else { return Ok(None) };
    let mut config = PostgresConfig::from_url(url)?;
    if config.password.is_some() {
        // Others can see the arguments of a process.
        let text = format!(
            "--postgres has a password in it: leave it out, and give it in the variable \
             {PASSWORD}, or in a file with --postgres-password-file"
        );
        return Err(text.into());
    }
    config.schema.clone_from(&options.postgres_schema);
    config.password = match &options.postgres_password_file {
        Some(file) => {
            let text = read(file)?;
            Some(text.strip_suffix('\n').unwrap_or(&text).to_owned().into())
        }
        None => std::env::var(PASSWORD).ok().map(Into::into),
    };
    if let Some(ca) = &options.postgres_ca {
        let mut tls = PostgresTls::new(read(ca)?);
        if let (Some(certificate), Some(key)) = (&options.postgres_cert, &options.postgres_key) {
            tls.identity_pem = Some((read(certificate)?, read(key)?.into()));
        }
        config.tls = Some(tls);
    }
    Ok(Some(PostgresBackend::connect(&config).await?))
}

fn read(path: &Path) -> Result<String, BoxError> {
    Ok(std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?)
}
