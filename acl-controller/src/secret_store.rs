//! The seam to the store that keeps tokens: the second of the crate's two seams.

mod file;
mod memory;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use secrecy::SecretString;

use crate::Result;

pub use file::FileSecrets;
pub use memory::MemorySecrets;

/// Store of named texts that nobody else may read.
///
/// A controller writes tokens into secrets that the deployment created. It never creates or deletes
/// a secret. Names are the deployment's: for AWS Secrets Manager a name or an ARN.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync + 'static {
    /// Reads the secret with this name; `None` if there is none.
    ///
    /// A secret that exists without a value yet is returned without one.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the secret, and is retryable for a
    /// throttled call; [`Error::Input`](crate::Error::Input) for a value that is not text.
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>>;

    /// Replaces the value of the secret if its current version is still `expected`, as read by
    /// [`get`](Self::get).
    ///
    /// - Of several writers that expect the same version, at most one gets [`Replaced::Done`]; the
    ///   others get [`Replaced::Conflict`] and have changed nothing.
    /// - While the current version stays the expected one, a writer that keeps trying succeeds in
    ///   the end.
    /// - Readers see the old value or the new one, never a part.
    /// - A completed write survives a crash.
    ///
    /// On AWS Secrets Manager `UpdateSecret` compares nothing, but refuses to change an existing
    /// version: a `ClientRequestToken` derived from the secret's name and the expected version lets
    /// only the first of several writers succeed.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the secret, also if there is none with this
    /// name. After an error that is not a refusal the write may have taken effect.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the write either has taken effect or has not.
    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced>;

    /// Lists the current version of every secret whose name begins with `prefix`, without reading
    /// any; `None` if the store cannot list them, or may not (`ListSecrets` is not permitted).
    ///
    /// The keys are names as [`get`](Self::get) takes them, in the form of the prefix: names for
    /// names. The versions are those of `get` and [`replace`](Self::replace). A secret whose
    /// current version is unknown is left out. A recent write may be missing, or appear with an
    /// older version.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) if the list is not available at the moment.
    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: SecretStore + ?Sized> SecretStore for Arc<T> {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        (**self).get(name).await
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        (**self).replace(name, expected, value).await
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        (**self).versions(prefix).await
    }
}

/// Content of a secret. `Debug` does not show the value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoredSecret {
    /// Value; `None` if the secret has none yet.
    pub value: Option<SecretString>,
    /// Version of the value.
    pub version: SecretVersion,
}

impl StoredSecret {
    /// Creates a secret with this value.
    pub fn new(value: Option<SecretString>, version: SecretVersion) -> Self {
        Self { value, version }
    }
}

/// Identifier of one value that a secret has or had. Shows nothing of the value.
///
/// On AWS Secrets Manager it is the `VersionId`; empty for a secret without a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SecretVersion(String);

impl SecretVersion {
    /// Wraps the store's own identifier.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the store's own identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Replaced {
    /// The secret holds the new value, under this version.
    Done(SecretVersion),
    /// Another writer had changed the secret since it was read. Nothing was written.
    Conflict,
}
