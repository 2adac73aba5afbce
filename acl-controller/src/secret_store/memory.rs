//! Secrets in memory: the double that keeps the seam honest, and a store for trials.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use secrecy::SecretString;

use super::{Replaced, SecretStore, SecretVersion, StoredSecret};
use crate::{Error, Result};

/// Secret store in memory. Its content ends with the process.
#[derive(Debug, Default)]
pub struct MemorySecrets {
    secrets: Mutex<BTreeMap<String, Held>>,
}

#[derive(Debug, Default)]
struct Held {
    value: Option<SecretString>,
    version: u64,
}

impl Held {
    fn version(&self) -> SecretVersion {
        // Version 0 is a secret without a value, whose version is empty in every store.
        SecretVersion::new(if self.version == 0 { String::new() } else { self.version.to_string() })
    }
}

impl MemorySecrets {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn secrets(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a secret without a value, as a deployment does. An existing one stays as it is.
    pub fn create(&self, name: impl Into<String>) {
        self.secrets().entry(name.into()).or_default();
    }

    /// Writes a secret unconditionally, and creates it if needed.
    pub fn put(&self, name: impl Into<String>, value: impl Into<SecretString>) {
        let mut secrets = self.secrets();
        let held = secrets.entry(name.into()).or_default();
        held.value = Some(value.into());
        held.version += 1;
    }

    /// Removes a secret.
    pub fn remove(&self, name: &str) {
        self.secrets().remove(name);
    }
}

#[async_trait]
impl SecretStore for MemorySecrets {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        let secrets = self.secrets();
        Ok(secrets.get(name).map(|held| StoredSecret::new(held.value.clone(), held.version())))
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        let mut secrets = self.secrets();
        let Some(held) = secrets.get_mut(name) else {
            return Err(Error::Other {
                operation: format!("replacing the secret {name}"),
                retryable: false,
                retry_after: None,
                source: "there is none with this name".into(),
            });
        };
        if held.version() != *expected {
            return Ok(Replaced::Conflict);
        }
        held.value = Some(value.clone());
        held.version += 1;
        Ok(Replaced::Done(held.version()))
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        let secrets = self.secrets();
        let found = secrets.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(Some(found.map(|(name, held)| (name.clone(), held.version())).collect()))
    }
}
