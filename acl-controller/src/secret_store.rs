//! Where tokens are kept: the second of the two seams.

mod file;
mod memory;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use secrecy::SecretString;

use crate::Result;

pub use file::FileSecrets;
pub use memory::MemorySecrets;

/// Keeps named texts that nobody else may read.
///
/// A controller writes tokens into secrets that the deployment made. It never makes or deletes a
/// secret. Names are what the deployment calls them: for AWS Secrets Manager a name or an ARN.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync + 'static {
    /// The secret with this name; `None` when there is none.
    ///
    /// A secret that exists and holds no value yet is there, without a value.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the secret; a throttled call is
    /// retryable. [`Error::Input`](crate::Error::Input) for a value that is not text.
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>>;

    /// Replaces the value of the secret if its current version is still `expected`, which is what
    /// [`get`](Self::get) said of it.
    ///
    /// - Of several writers that expect the same version, at most one is told
    ///   [`Replaced::Done`]; the others are told [`Replaced::Conflict`] and have changed nothing.
    /// - While the current version stays the expected one, a writer that goes on trying is done
    ///   in the end.
    /// - Readers see the old value or the new one, never a part.
    /// - A write that was done is not lost by a crash.
    ///
    /// On AWS Secrets Manager `UpdateSecret` compares nothing, but refuses to change a version
    /// that exists: a `ClientRequestToken` that follows from the secret's name and the expected
    /// version lets only the first of several writers through.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) that names the secret, also when there is none with
    /// this name. After an error that is not a refusal the write may have taken effect.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the write has taken effect or it has not.
    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced>;

    /// The current version of every secret whose name begins with `prefix`, without reading any;
    /// `None` when the store cannot say that, or may not (`ListSecrets` is not permitted).
    ///
    /// The keys are names as [`get`](Self::get) takes them, and as the prefix is given: names for
    /// names. The versions are those that `get` and [`replace`](Self::replace) tell. A secret
    /// whose current version is not known is left out. What was written a moment ago may be
    /// missing, or appear with an older version.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) when it cannot be had at the moment.
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

/// What a secret holds. `Debug` does not show the value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoredSecret {
    /// The value; `None` when the secret holds none yet.
    pub value: Option<SecretString>,
    /// Which value it is.
    pub version: SecretVersion,
}

impl StoredSecret {
    /// A secret with this value.
    pub fn new(value: Option<SecretString>, version: SecretVersion) -> Self {
        Self { value, version }
    }
}

/// Names one value that a secret has or had. It does not tell what the value is.
///
/// On AWS Secrets Manager it is the `VersionId`; empty for a secret without a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SecretVersion(String);

impl SecretVersion {
    /// The version that the store calls so.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// What the store calls it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Replaced {
    /// The secret holds the new value.
    Done(SecretVersion),
    /// Somebody else had changed the secret since it was read. Nothing was written.
    Conflict,
}
