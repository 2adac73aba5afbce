//! What an entry of the log does to what a state machine holds.
//!
//! It depends on the entries before it only, so all nodes hold the same. A
//! refused change is an answer: the entry stays in the log and changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use openraft::EntryPayload;
use prost::Message as _;

use super::restore::{self, Done};
use crate::{
    backend::{
        Error, Result,
        raft::{
            config::RetiredTypes,
            types::{Content, Contents, Entry, Outcome, StoredMembership},
        },
        store::change::Change,
    },
    pb::{
        Resource, Type,
        generated::{
            hashicorp::consul::internal::storage::raft::{self as wire, LogType, log::Request},
            resource_store::peer::v1 as peer,
        },
    },
};

/// The messages to watches.
#[derive(Debug)]
pub(super) enum Told {
    Change(Change),
    Restored,
}

/// Applies entries to contents that nobody else sees yet.
pub(super) struct Applying<'a> {
    pub(super) contents: Contents,
    pub(super) retired: &'a RetiredTypes,
    /// Messages to send once the contents can be read, in the order of the log.
    pub(super) told: Vec<Told>,
}

impl Applying<'_> {
    /// Does what an entry says.
    ///
    /// # Errors
    ///
    /// If what this node holds is damaged: it would do something else than the others, so
    /// it must not go on.
    pub(super) fn apply(&mut self, entry: Entry) -> Result<Outcome> {
        let log_id = entry.log_id;
        let outcome = match entry.payload {
            EntryPayload::Blank => Outcome::Nothing,
            EntryPayload::Normal(proposal) => {
                // A restore may have brought versions beyond the index of this entry; later ones are larger.
                let index = log_id.index.saturating_add(self.contents.version_offset);
                match &proposal.content {
                    Content::Log(log) => self.apply_log(log, index)?,
                    Content::Restore(step) => self.restore(step, log_id.index, index)?,
                }
            }
            EntryPayload::Membership(membership) => {
                self.contents.membership = StoredMembership::new(Some(log_id), membership);
                Outcome::Nothing
            }
        };
        // Also after a refused change: the entry counts as applied, or it would be applied again.
        self.contents.applied = Some(log_id);
        Ok(outcome)
    }

    /// Takes a step of a restore. After its end versions count on from the
    /// highest one that came, so that none comes twice.
    fn restore(&mut self, step: &Bytes, entry: u64, index: u64) -> Result<Outcome> {
        let step = match peer::RestoreStep::decode(step.clone()) {
            Ok(step) => step,
            Err(error) => {
                // All nodes refuse it alike: an error here would stop each of them at the same entry for ever.
                return Ok(Outcome::Malformed(format!("failed to decode request: {error}")));
            }
        };
        let done = restore::apply(&mut self.contents, step, index)?;
        if let Ok(Done::Shown(highest)) = done {
            self.contents.version_offset = highest.saturating_sub(entry);
            self.told.push(Told::Restored);
        }
        Ok(Outcome::Restored(done.map(|_| ())))
    }

    fn apply_log(&mut self, log: &Bytes, index: u64) -> Result<Outcome> {
        let log = match wire::Log::decode(log.clone()) {
            Ok(log) => log,
            Err(error) => {
                return Ok(Outcome::Malformed(format!("failed to decode request: {error}")));
            }
        };
        Ok(match (LogType::try_from(log.r#type), log.request) {
            (
                Ok(LogType::Write),
                Some(Request::Write(wire::WriteRequest { resource: Some(resource) })),
            ) => self.write(resource, index)?,
            (
                Ok(LogType::Delete),
                Some(Request::Delete(wire::DeleteRequest { id: Some(id), version })),
            ) => {
                if self.is_retired(id.r#type.as_ref()) {
                    // Whoever asked is answered as Consul does, which dropped these types and not their entries.
                    return Ok(Outcome::Deleted(Ok(())));
                }
                let deleted = self.contents.resources.delete(&id, &version, index);
                Outcome::Deleted(
                    refused(deleted)?.map(|change| self.told.extend(change.map(Told::Change))),
                )
            }
            (Ok(LogType::Write | LogType::Delete), _) => {
                Outcome::Malformed("request without content".to_owned())
            }
            (Ok(LogType::Unspecified) | Err(_), _) => {
                Outcome::Malformed(format!("unexpected request type: {}", log.r#type))
            }
        })
    }

    fn write(&mut self, resource: Resource, index: u64) -> Result<Outcome> {
        if resource.id.is_none() {
            return Ok(Outcome::Malformed("resource has no id".to_owned()));
        }
        if self.is_retired(resource.resource_type()) {
            return Ok(Outcome::Written(Ok(Arc::new(resource))));
        }
        let written = self.contents.resources.write(resource, index.to_string(), index);
        Ok(Outcome::Written(refused(written)?.map(|change| {
            // The answer shares the resource with the store: it is not copied for each writer.
            let stored = Arc::clone(&change.resource);
            self.told.push(Told::Change(change));
            stored
        })))
    }

    fn is_retired(&self, ty: Option<&Type>) -> bool {
        let retired = ty.filter(|ty| self.retired.contains(ty));
        if let Some(ty) = retired {
            tracing::warn!(r#type = %ty, "ignoring operation for retired type");
        }
        retired.is_some()
    }
}

/// Tells a change that every node refuses from damage, which only this one has.
fn refused<T>(changed: Result<T>) -> Result<Result<T>> {
    match changed {
        Err(damage @ Error::Other { .. }) => Err(damage),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{
            raft::types::{LogId, Proposal},
            store::held::Encoded,
        },
        demo,
        pb::generated::resource_store::peer::v1::restore_step::Step,
    };

    fn entry(content: Content) -> Entry {
        let log_id = LogId::new(openraft::CommittedLeaderId::new(1, 1), 1);
        Entry { log_id, payload: EntryPayload::Normal(Proposal::new(content)) }
    }

    fn log(r#type: LogType, request: Request) -> Content {
        Content::log(&wire::Log { r#type: r#type.into(), request: Some(request) })
    }

    /// The other nodes would do the entry: a node that refused it would differ from them for ever.
    #[test]
    fn damage_of_what_is_held_is_no_refused_change() {
        let korn = demo::artist("korn").encode();
        let id = korn.id.clone().unwrap();
        let part = peer::RestorePart { number: 0, resources: vec![korn.clone()] };
        let step = peer::RestoreStep { restore: 7, step: Some(Step::Part(part)) };
        let delete = wire::DeleteRequest { id: Some(id.clone()), version: "1".to_owned() };
        let entries = [
            log(LogType::Write, Request::Write(wire::WriteRequest { resource: Some(korn) })),
            log(LogType::Delete, Request::Delete(delete)),
            Content::Restore(step.encode_to_vec().into()),
        ];
        let mut contents = Contents::default();
        contents.resources.spoil(&id, Encoded::damaged());
        contents.restoring.spoil(&id, Encoded::damaged());
        contents.restore.restore = 7;
        for content in entries {
            let retired = &RetiredTypes::default();
            let mut applying = Applying { contents: contents.clone(), retired, told: Vec::new() };
            let error = applying.apply(entry(content)).unwrap_err();
            assert!(matches!(error, Error::Other { .. }), "{error}");
        }
    }
}
