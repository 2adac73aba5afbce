//! Conditional writes and deletes, each one transaction of etcd.
//!
//! A transaction compares the revision of what was last read, and so its uid
//! and version. The entry in the index by owner changes in the same one.

use std::sync::Arc;

use super::{
    layout::Generation,
    pb::{Compare, KeyValue, RequestOp, TxnRequest},
    record::{self, Stored},
    session::{Session, restored_too_often},
};
use crate::{
    backend::{
        Consistency, Error, Result,
        store::condition::{check_delete, check_write},
    },
    pb::{Id, Resource},
};

const WRITING: &str = "writing to etcd";
const DELETING: &str = "deleting from etcd";
/// Limit of restarts of a change because a restore or another writer came between.
const RESTARTS: usize = 16;

/// The record under a key of a generation.
struct Found {
    generation: Generation,
    stored: Option<Stored>,
    /// `true` if that is so now; it may else be old, or only supposed.
    certain: bool,
}

/// The result of a transaction.
enum Outcome {
    /// It took place at this revision.
    Done(i64),
    /// Something else is stored; `uncertain` if this may come from an earlier
    /// attempt at the same transaction.
    Changed { found: Found, uncertain: bool },
    /// Another generation counts now.
    Restored { uncertain: bool },
}

fn unknown_outcome(operation: &'static str) -> Error {
    Error::outcome_unknown(operation, "the answer of etcd was lost")
}

impl Session {
    async fn find(&self, consistency: Consistency, id: &Id) -> Result<Found> {
        let get =
            |generation: &Generation| vec![RequestOp::get(self.layout.resource(generation, id))];
        let mut guarded = self.read(consistency, "reading from etcd", get).await?;
        let found = guarded.ranges.pop().unwrap_or_default();
        let stored = decode_first(&guarded.generation, &found.kvs)?;
        let certain = consistency == Consistency::Strong;
        Ok(Found { generation: guarded.generation, stored, certain })
    }

    /// Returns the record to begin with. A version other than none tells what to
    /// expect, but not its owner; a member's own state mostly does.
    async fn suppose(&self, id: &Id, version: &str) -> Result<Found> {
        if version.is_empty() {
            let generation = self.generation().await?;
            return Ok(Found { generation, stored: None, certain: false });
        }
        self.find(Consistency::Eventual, id).await
    }

    pub(super) async fn write(&self, resource: Resource) -> Result<Arc<Resource>> {
        let id =
            resource.id.clone().ok_or_else(|| Error::failed(WRITING, "the resource has no id"))?;
        let attempt = fastrand::u64(1..);
        let value = record::written(resource.clone(), attempt);
        let mut found = self.suppose(&id, &resource.version).await?;
        for _ in 0..RESTARTS {
            let stored = found.stored.as_ref().map(|stored| &*stored.resource);
            if let Err(refusal) = check_write(stored, &resource) {
                if found.certain {
                    return Err(refusal);
                }
                found = self.find(Consistency::Strong, &id).await?;
                continue;
            }
            let operations = self.operations_of_write(&found, &resource, &id, &value);
            let outcome = match self.change(&found, &id, operations, WRITING).await {
                Err(Error::OutcomeUnknown { reason, .. }) if found.stored.is_none() => {
                    return self.find_creation(&id, attempt, &reason).await;
                }
                other => other?,
            };
            match outcome {
                Outcome::Done(revision) => {
                    let version = found.generation.version_at(revision);
                    return Ok(Arc::new(Resource { version, ..resource }));
                }
                Outcome::Restored { uncertain: false } => {
                    found = self.find(Consistency::Strong, &id).await?;
                }
                Outcome::Changed { found: now, uncertain: false } => found = now,
                Outcome::Changed { found: now, uncertain: true } => {
                    let ours = now.stored.filter(|stored| stored.attempt == attempt);
                    return ours
                        .map(|stored| stored.resource)
                        .ok_or_else(|| unknown_outcome(WRITING));
                }
                Outcome::Restored { uncertain: true } => return Err(unknown_outcome(WRITING)),
            }
        }
        Err(restored_too_often())
    }

    /// Finds out whether a creation whose answer was lost took effect.
    ///
    /// It is not repeated: where another process has deleted what it created,
    /// there is nothing under the name again, and a second attempt would bring
    /// back what was deleted.
    async fn find_creation(&self, id: &Id, attempt: u64, reason: &str) -> Result<Arc<Resource>> {
        let unknown = || Error::outcome_unknown(WRITING, reason);
        let found = self.find(Consistency::Strong, id).await.map_err(|_e| unknown())?;
        let ours = found.stored.filter(|stored| stored.attempt == attempt);
        ours.map(|stored| stored.resource).ok_or_else(unknown)
    }

    fn operations_of_write(
        &self,
        found: &Found,
        resource: &Resource,
        id: &Id,
        value: &[u8],
    ) -> Vec<RequestOp> {
        let owned = |resource: &Resource| self.layout.owned(&found.generation, resource);
        let before = found.stored.as_ref().and_then(|stored| owned(&stored.resource));
        let after = owned(resource);
        let key = self.layout.resource(&found.generation, id);
        let mut operations = vec![RequestOp::put(key, value.to_vec())];
        if before != after {
            operations.extend(before.map(RequestOp::delete));
            operations.extend(after.map(|entry| RequestOp::put(entry, Vec::new())));
        }
        operations
    }

    pub(super) async fn delete(&self, id: &Id, version: &str) -> Result<()> {
        let mut found = self.find(Consistency::Eventual, id).await?;
        for _ in 0..RESTARTS {
            let checked = match &found.stored {
                Some(stored) => check_delete(&stored.resource, id, version),
                None => Ok(false),
            };
            let (Ok(true), Some(stored)) = (&checked, &found.stored) else {
                if found.certain {
                    return checked.map(|_nothing_to_do| ());
                }
                found = self.find(Consistency::Strong, id).await?;
                continue;
            };
            let entry = self.layout.owned(&found.generation, &stored.resource);
            let mut operations =
                vec![RequestOp::delete(self.layout.resource(&found.generation, id))];
            operations.extend(entry.map(RequestOp::delete));
            match self.change(&found, id, operations, DELETING).await? {
                Outcome::Done(_) => return Ok(()),
                Outcome::Restored { uncertain: false } => {
                    found = self.find(Consistency::Strong, id).await?;
                }
                Outcome::Changed { found: now, uncertain: false } => found = now,
                Outcome::Changed { found: now, uncertain: true } => {
                    // If it is gone, it does not matter by whose hand.
                    let same = now.stored.is_some_and(|stored| stored.resource.uid() == id.uid);
                    return if same { Err(unknown_outcome(DELETING)) } else { Ok(()) };
                }
                Outcome::Restored { uncertain: true } => return Err(unknown_outcome(DELETING)),
            }
        }
        Err(restored_too_often())
    }

    /// Does the operations if `found` is what is stored.
    async fn change(
        &self,
        found: &Found,
        id: &Id,
        operations: Vec<RequestOp>,
        operation: &'static str,
    ) -> Result<Outcome> {
        let key = self.layout.resource(&found.generation, id);
        let revision = found.stored.as_ref().map_or(0, |stored| stored.revision);
        let request = TxnRequest {
            compare: vec![
                self.guard(&found.generation),
                Compare::changed_at(key.clone(), revision),
            ],
            success: operations,
            failure: vec![self.ask_generation(), RequestOp::get(key)],
        };
        let answer = match &found.stored {
            // No revision comes again, but having nothing there does.
            None => self.cluster.txn_at_most_once(&request).await,
            Some(_) => self.cluster.txn(&request).await,
        };
        let answer = answer.map_err(|failure| failure.into_error(operation))?;
        let now = answer.response.revision();
        self.seen(now);
        let uncertain = answer.uncertain;
        if answer.response.succeeded {
            return Ok(Outcome::Done(now));
        }
        let mut ranges = answer.response.into_ranges();
        let current = self.learn_from(&ranges.next().unwrap_or_default())?;
        if current.as_ref() != Some(&found.generation) {
            return Ok(Outcome::Restored { uncertain });
        }
        let stored = decode_first(&found.generation, &ranges.next().unwrap_or_default().kvs)?;
        let found = Found { generation: found.generation.clone(), stored, certain: true };
        Ok(Outcome::Changed { found, uncertain })
    }
}

fn decode_first(generation: &Generation, kvs: &[KeyValue]) -> Result<Option<Stored>> {
    kvs.first().map(|stored| Stored::decode(generation, stored)).transpose()
}
