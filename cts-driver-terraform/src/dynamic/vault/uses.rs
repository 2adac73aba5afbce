//! The secrets that one task uses: their leases are kept, and each change is reported once, also one
//! that came while nobody waited.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Result, Secret, Vault};

/// The secrets that one task uses, and what it knows of each. Their leases are kept until this is
/// dropped.
pub(in crate::dynamic) struct Uses {
    vault: Arc<Vault>,
    /// Version by path: of the first read, or of the change last told of. `None` before both.
    known: Mutex<HashMap<String, Option<u64>>>,
}

impl Uses {
    pub(in crate::dynamic) fn new(vault: &Arc<Vault>) -> Self {
        Self { vault: Arc::clone(vault), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Option<u64>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_up(&self, path: &str) {
        self.known().entry(path.to_owned()).or_insert_with(|| {
            self.vault.leases.take_up(path);
            None
        });
    }

    /// Reads a secret, and keeps its lease from now on.
    ///
    /// Later reads leave the known version as it is: one for a plan to look at must not hide that
    /// what was applied is out of date.
    pub(in crate::dynamic) async fn read(&self, path: &str) -> Result<Secret> {
        self.take_up(path);
        let (secret, version) = self.vault.read(path).await?;
        self.known().entry(path.to_owned()).or_default().get_or_insert(version);
        Ok(secret)
    }

    /// Waits until one of these secrets is another one than it was at its first read, or at the
    /// end of the wait before, or, without those, now.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and nothing else.
    pub(in crate::dynamic) async fn changed(&self, paths: &[&str]) {
        for path in paths {
            self.take_up(path);
        }
        let mut changes = self.vault.leases.subscribe();
        while !self.take_changes(paths) {
            // The sender lives as long as this.
            let _end = changes.changed().await;
        }
    }

    /// Takes notice of the secrets' versions; returns whether one is new.
    fn take_changes(&self, paths: &[&str]) -> bool {
        let mut known = self.known();
        let mut is_new = false;
        for path in paths {
            let version = self.vault.leases.version(path);
            let before = known.entry((*path).to_owned()).or_default().replace(version);
            is_new |= before.is_some_and(|before| before != version);
        }
        is_new
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        for path in self.known().keys() {
            self.vault.leases.give_up(path);
        }
        self.vault.leases.sweep();
    }
}
