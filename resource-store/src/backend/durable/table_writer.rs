//! Changing a table within one transaction.

use std::sync::Arc;

use redb::{ReadableTable as _, WriteTransaction};

use super::{
    fault::FileState,
    layout::{INDEX, META, Place},
    record,
};
use crate::{
    backend::{
        Error, Result,
        store::{change::Change, condition, key},
    },
    pb::{Id, Resource},
};

type Rows<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// Changes a table; nobody sees it before the transaction is over.
///
/// A refused change leaves the others of the transaction alone. An error of the
/// storage breaks the transaction: then it cannot be finished.
pub(crate) struct TableWriter<'t> {
    file: &'t FileState,
    transaction: &'t WriteTransaction,
    resources: Option<Pair<'t>>,
    /// The other place that was changed last.
    staged: Option<(Place, Pair<'t>)>,
    index: u64,
    changed: bool,
    /// Why the transaction cannot be finished.
    broken: Option<String>,
}

/// Resources, and the index by owner.
struct Pair<'t> {
    resources: Rows<'t>,
    owned: Rows<'t>,
}

impl<'t> TableWriter<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction, file: &'t FileState, index: u64) -> Self {
        Self {
            file,
            transaction,
            resources: None,
            staged: None,
            index,
            changed: false,
            broken: None,
        }
    }

    /// Stores a resource as the change `index`, which becomes its version, if
    /// its version is what is stored.
    pub(crate) fn write(&mut self, mut resource: Resource, index: u64) -> Result<Change> {
        let key = condition::key_of(&resource)?;
        let stored = self.get(&key)?;
        condition::check_write(stored.as_deref(), &resource)?;
        resource.version = index.to_string();
        let resource = Arc::new(resource);
        self.changed = true;
        let old_owner = stored.as_ref().and_then(|stored| stored.owner.clone());
        self.attempt(|pair| pair.put(&key, &resource, old_owner))?;
        self.index = self.index.max(index);
        Ok(Change::write(index, stored.as_ref(), resource))
    }

    /// Deletes a resource as the change `index`; nothing if it is not there, or
    /// another incarnation.
    pub(crate) fn delete(&mut self, id: &Id, version: &str, index: u64) -> Result<Option<Change>> {
        let key = key::resource_key(id);
        let Some(stored) = self.get(&key)? else { return Ok(None) };
        if !condition::check_delete(&stored, id, version)? {
            return Ok(None);
        }
        self.changed = true;
        self.attempt(|pair| pair.remove(&key, &stored))?;
        self.index = self.index.max(index);
        Ok(Some(Change::delete(index, stored)))
    }

    /// Keeps something beside the resources.
    pub(crate) fn set_meta(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.changed = true;
        let record = record::seal(key, |record| record.extend_from_slice(value));
        let put = || -> Result<(), redb::Error> {
            self.transaction.open_table(META)?.insert(key, record.as_slice())?;
            Ok(())
        };
        put().map_err(|error| self.broke(error))
    }

    /// Keeps a number beside the resources.
    pub(crate) fn set_number(&mut self, key: &[u8], value: u64) -> Result<()> {
        self.set_meta(key, &value.to_be_bytes())
    }

    /// Throws away what is at a place that is not shown.
    pub(crate) fn clear(&mut self, place: Place) -> Result<()> {
        self.changed = true;
        self.staged = None;
        let clear = || -> Result<(), redb::Error> {
            let (resources, owned) = place.tables();
            self.transaction.delete_table(resources)?;
            self.transaction.delete_table(owned)?;
            Ok(())
        };
        clear().map_err(|error| self.broke(error))
    }

    /// Puts a resource aside as it is, until [`Self::show`], which may
    /// be in a later transaction.
    pub(crate) fn stage(&mut self, place: Place, resource: &Arc<Resource>) -> Result<()> {
        self.changed = true;
        let key = condition::key_of(resource)?;
        let transaction = self.transaction;
        let mut stage = || -> Result<(), Broken> {
            if self.staged.as_ref().is_some_and(|(staged, _)| *staged != place) {
                self.staged = None;
            }
            let (_, pair) = match &mut self.staged {
                Some(staged) => staged,
                none => none.insert((place, Pair::open(transaction, place)?)),
            };
            let before = pair.get(&key)?.and_then(|record| {
                // What was staged by this version is sound.
                record::unseal_resource(&key, &record).ok()?.owner.clone()
            });
            pair.put(&key, resource, before)
        };
        stage().map_err(|Broken(error)| self.broke(error))
    }

    /// Puts what was staged at `from` in the place of all that is at `to`.
    pub(crate) fn replace(&mut self, from: Place, to: Place) -> Result<()> {
        self.changed = true;
        self.resources = None;
        self.staged = None;
        let transaction = self.transaction;
        let (staged, places) = (from.tables(), to.tables());
        let replace = || -> Result<(), redb::Error> {
            for (staged, place) in [(staged.0, places.0), (staged.1, places.1)] {
                // There is none if nothing was staged.
                drop(transaction.open_table(staged)?);
                transaction.delete_table(place)?;
                transaction.rename_table(staged, place)?;
            }
            Ok(())
        };
        replace().map_err(|error| self.broke(error))
    }

    /// Puts what was staged in the place of all that there is, as the change
    /// `index`.
    pub(crate) fn show(&mut self, staged: Place, index: u64) -> Result<()> {
        self.replace(staged, Place::Shown)?;
        self.index = self.index.max(index);
        Ok(())
    }

    /// Lets the transaction be committed though nothing changed.
    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    /// Completes the transaction, short of its commit. Says whether there is
    /// anything to commit.
    pub(super) fn finish(mut self) -> Result<bool> {
        if let Some(reason) = &self.broken {
            return Err(self.file.transaction(reason).during("write"));
        }
        if self.changed {
            self.set_number(INDEX, self.index)?;
        }
        Ok(self.changed)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Arc<Resource>>> {
        let Some(record) = self.attempt(|pair| pair.get(key))? else { return Ok(None) };
        // Nothing takes the place of what is damaged, and the others go on.
        let resource = record::unseal_resource(key, &record);
        resource.map(Some).map_err(|damage| self.file.record(key, damage).during("write"))
    }

    /// Does something with the resources.
    fn attempt<T>(&mut self, work: impl FnOnce(&mut Pair<'t>) -> Result<T, Broken>) -> Result<T> {
        let pair = match self.resources.take() {
            Some(pair) => Ok(pair),
            None => Pair::open(self.transaction, Place::Shown),
        };
        let worked = pair.and_then(|mut pair| {
            let result = work(&mut pair);
            self.resources = Some(pair);
            result
        });
        worked.map_err(|Broken(error)| self.broke(error))
    }

    fn broke(&mut self, error: redb::Error) -> Error {
        let reason = error.to_string();
        self.broken.get_or_insert(reason);
        self.file.storage(error).during("write")
    }
}

/// An error of the storage.
struct Broken(redb::Error);

impl<E: Into<redb::Error>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl<'t> Pair<'t> {
    fn open(transaction: &'t WriteTransaction, place: Place) -> Result<Self, Broken> {
        let (resources, owned) = place.tables();
        let resources = transaction.open_table(resources)?;
        Ok(Self { resources, owned: transaction.open_table(owned)? })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        Ok(self.resources.get(key)?.map(|record| record.value().to_vec()))
    }

    fn put(
        &mut self,
        key: &[u8],
        resource: &Resource,
        old_owner: Option<Id>,
    ) -> Result<(), Broken> {
        if let Some(id) = &resource.id {
            if let Some(old) = old_owner.filter(|owner| Some(owner) != resource.owner.as_ref()) {
                self.owned.remove(key::owned_key(&old, id).as_slice())?;
            }
            if let Some(owner) = &resource.owner {
                let key = key::owned_key(owner, id);
                let record = record::seal(&key, |_| ());
                self.owned.insert(key.as_slice(), record.as_slice())?;
            }
        }
        let record = record::seal_resource(key, resource);
        self.resources.insert(key, record.as_slice())?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8], stored: &Resource) -> Result<(), Broken> {
        self.resources.remove(key)?;
        if let (Some(owner), Some(id)) = (&stored.owner, &stored.id) {
            self.owned.remove(key::owned_key(owner, id).as_slice())?;
        }
        Ok(())
    }
}
