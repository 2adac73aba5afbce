//! References in templates, and the seam for whoever knows their values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
    sync::Arc,
};

use async_trait::async_trait;
use secrecy::SecretString;

use crate::Result;

/// The source of a value that a template names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reference {
    /// A variable of the process's environment.
    Environment {
        /// Name of the variable.
        name: String,
    },
    /// A key of Consul's KV store.
    ConsulKey {
        /// The whole key.
        path: String,
    },
    /// A field of a secret of Vault.
    Secret {
        /// Path of the secret, as in the template.
        path: String,
        /// The members to descend, the first below the answer's `data`.
        field: Vec<String>,
    },
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { name } => write!(f, "the environment variable {name:?}"),
            Self::ConsulKey { path } => write!(f, "the Consul key {path:?}"),
            Self::Secret { path, field } => {
                write!(f, "the field .Data.{} of the secret {path:?}", field.join("."))
            }
        }
    }
}

/// The values of references.
pub type Values = BTreeMap<Reference, SecretString>;

/// Knows the values that templates ask for.
#[async_trait]
pub trait ValueSource: Debug + Send + Sync + 'static {
    /// The value of each reference. Fields of one secret come from one read,
    /// so that they belong together.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] for the first that is not available.
    async fn look_up(&self, wanted: &BTreeSet<Reference>) -> Result<Values>;

    /// Keeps alive what look-ups need, such as a token, for as long as the
    /// future is polled; ends where there is nothing to keep.
    async fn keep_alive(&self) {}

    /// Returns this source as one task sees it; `None`, the default, if all see the same.
    ///
    /// What was looked up there is kept alive until it is dropped, and
    /// [`ValueSource::changed`] tells of every change since the first look-up, also of one
    /// before the wait.
    fn for_task(&self) -> Option<Arc<dyn ValueSource>> {
        None
    }

    /// Waits until one of these values is another one than it was, as far as this source hears
    /// of that: whoever uses it then has to look it up again. Each change is reported once.
    /// Never ends by default.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and nothing else.
    async fn changed(&self, _wanted: &BTreeSet<Reference>) {
        std::future::pending::<()>().await;
    }
}
