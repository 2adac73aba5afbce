//! Installing a `terraform` that is missing (feature `download`).

mod mirror;
mod place;
#[cfg(feature = "verify-signature")]
mod release_keys;

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;

pub use self::mirror::ReleaseMirror;
#[cfg(feature = "verify-signature")]
pub use self::release_keys::ReleaseKeys;
use crate::{Result, Version, VersionConstraint};

/// Version that is installed where the source has no list of versions.
///
/// Source: Consul-Terraform-Sync 0.9, installation of Terraform.
const FALLBACK: &str = "1.1.8";

/// A source of Terraform releases.
#[async_trait]
pub trait TerraformSource: Debug + Send + Sync + 'static {
    /// The newest version that the constraint accepts; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Install`] when that is unknown.
    async fn newest(&self, constraint: &VersionConstraint) -> Result<Option<Version>>;

    /// The program itself, for this machine, after every check that the source knows.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Install`] when it is not available, or is not what it should be.
    async fn program(&self, version: &Version) -> Result<Bytes>;
}

/// Puts a Terraform into a directory.
///
/// Source: Consul-Terraform-Sync 0.9, installation of Terraform.
///
/// Deviation: only on request; and the newest version that the constraint
/// accepts is taken, where upstream falls back to an old one as soon as the
/// newest of all is too new.
#[derive(Debug, Clone)]
pub struct Installer {
    source: Arc<dyn TerraformSource>,
    directory: PathBuf,
    version: Option<Version>,
    supported: VersionConstraint,
}

impl Installer {
    /// Installs into `directory`: `version`, or else the newest supported one.
    pub fn new(
        source: Arc<dyn TerraformSource>,
        directory: impl Into<PathBuf>,
        version: Option<Version>,
        supported: VersionConstraint,
    ) -> Self {
        Self { source, directory: directory.into(), version, supported }
    }

    /// Returns the directory into which the program is put.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Installs, and returns the program's path. What is there is replaced at
    /// once and as a whole.
    ///
    /// # Errors
    ///
    /// Those of the source, and [`crate::Error::File`].
    pub async fn install(&self) -> Result<PathBuf> {
        let version = match &self.version {
            Some(version) => version.clone(),
            None => self.newest().await?,
        };
        tracing::info!(%version, directory = %self.directory.display(), "installing Terraform");
        let program = self.source.program(&version).await?;
        place::put(&self.directory, program).await
    }

    async fn newest(&self) -> Result<Version> {
        match self.source.newest(&self.supported).await {
            Ok(Some(version)) => return Ok(version),
            Ok(None) => tracing::warn!(
                supported = %self.supported, fallback = FALLBACK, "there is no supported version"
            ),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                fallback = FALLBACK,
                "cannot tell which version is the newest"
            ),
        }
        FALLBACK.parse()
    }
}
