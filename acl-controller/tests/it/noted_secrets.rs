//! A store that notes what is asked of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use acl_controller::{
    MemorySecrets, Result, SecretStore,
    secret_store::{Replaced, SecretVersion, StoredSecret},
};
use async_trait::async_trait;
use secrecy::SecretString;

/// Calls in their order.
pub(crate) type Calls = Arc<Mutex<Vec<String>>>;

pub(crate) fn note(calls: &Calls, call: String) {
    calls.lock().unwrap().push(call);
}

/// Secrets in memory, with every call noted; can refuse to list.
#[derive(Debug)]
pub(crate) struct NotedSecrets {
    pub(crate) inner: Arc<MemorySecrets>,
    pub(crate) calls: Calls,
    pub(crate) lists: bool,
}

#[async_trait]
impl SecretStore for NotedSecrets {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        note(&self.calls, format!("secret get {name}"));
        self.inner.get(name).await
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        note(&self.calls, format!("secret replace {name}"));
        self.inner.replace(name, expected, value).await
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        note(&self.calls, format!("secret versions {prefix}"));
        if self.lists { self.inner.versions(prefix).await } else { Ok(None) }
    }
}
