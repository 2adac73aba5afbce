//! Replacing everything at once.
//!
//! Etcd takes 128 operations in one transaction, so what is restored is written
//! aside, as a new generation, in many; one last transaction makes it the one
//! that counts. Whoever begins a restore takes it over from whoever else is at
//! it, whose next transaction fails.
//!
//! No key has a lease. The keys of a generation become the store, and etcd takes a
//! lease off a key only when the key is put again: 128 in one transaction, which
//! would be no switch any more. So what is left of a restore whose process died
//! stays, unseen, until the next one begins and deletes it.

use std::{collections::BTreeMap, sync::Arc};

use futures::TryStreamExt as _;

use super::{
    cluster::Answer,
    layout::{Generation, KeyRange},
    pb::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse},
    record,
    session::{Session, restored_too_often},
};
use crate::{
    backend::{Consistency, Error, ResourceStream, Result, store::condition::key_of},
    pb::Resource,
};

const RESTORING: &str = "restoring to etcd";
/// Upper bounds of one transaction: number of resources, and their bytes.
const BATCH: usize = 60;
const BATCH_BYTES: usize = 512 << 10;
/// Number of keys that are deleted at a time.
const DELETES: i64 = 1000;
const ATTEMPTS: usize = 5;

/// Replaces everything by what the stream gives.
pub(super) async fn restore(session: &Arc<Session>, resources: ResourceStream) -> Result<()> {
    let restore = Restore::begin(session).await?;
    match restore.stage(resources).await {
        Ok(()) => restore.commit().await,
        Err(error) => {
            restore.abandon().await;
            Err(error)
        }
    }
}

struct Restore {
    session: Arc<Session>,
    /// Generation that is written aside.
    generation: Generation,
}

/// The resources of one transaction, by their keys.
#[derive(Default)]
struct Batch {
    records: BTreeMap<Vec<u8>, Staged>,
    bytes: usize,
}

/// A record, and its entry in the index by owner.
struct Staged {
    value: Vec<u8>,
    entry: Option<Vec<u8>>,
}

impl Restore {
    async fn begin(session: &Arc<Session>) -> Result<Self> {
        let restore = Self { session: Arc::clone(session), generation: Generation::random() };
        let name = restore.generation.as_str().as_bytes().to_vec();
        let begin = vec![RequestOp::put(session.layout.restoring(), name)];
        restore.txn(TxnRequest { success: begin, ..TxnRequest::default() }).await?;
        restore.clear_leftovers().await?;
        Ok(restore)
    }

    /// Does what has no effect on anything that counts.
    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse> {
        let answer = self.session.cluster.txn(&request).await;
        Ok(answer.map_err(|failure| failure.repeatable().into_error(RESTORING))?.response)
    }

    /// That nobody else took over.
    fn ours(&self) -> Compare {
        let name = self.generation.as_str().as_bytes().to_vec();
        Compare::value_is(self.session.layout.restoring(), name)
    }

    /// Deletes what restores left that were cut short.
    async fn clear_leftovers(&self) -> Result<()> {
        let read = self.session.read(Consistency::Strong, RESTORING, |_| Vec::new()).await?;
        let all = self.session.layout.generations();
        let current = self.session.layout.generation(&read.generation);
        self.delete(KeyRange { start: all.start, end: current.start }).await?;
        self.delete(KeyRange { start: current.end, end: all.end }).await
    }

    async fn delete(&self, range: KeyRange) -> Result<()> {
        self.delete_if(&self.ours(), range).await
    }

    /// Deletes a range in steps, so that etcd is not held up by one.
    async fn delete_if(&self, condition: &Compare, mut range: KeyRange) -> Result<()> {
        loop {
            let step = RangeRequest {
                key: range.start.clone(),
                range_end: range.end.clone(),
                limit: DELETES,
                keys_only: true,
                ..RangeRequest::default()
            };
            let found = self.txn(TxnRequest::reads(vec![RequestOp::range(step)])).await?;
            let found = found.into_range();
            let Some(last) = found.kvs.last() else { return Ok(()) };
            let mut end = last.key.clone();
            end.push(0);
            let operation = RequestOp::delete_range(range.start, end.clone());
            let compare = vec![condition.clone()];
            let request = TxnRequest { compare, success: vec![operation], ..TxnRequest::default() };
            if !self.txn(request).await?.succeeded {
                return Err(taken_over());
            }
            if !found.more {
                return Ok(());
            }
            range.start = end;
        }
    }

    async fn stage(&self, mut resources: ResourceStream) -> Result<()> {
        let mut batch = Batch::default();
        while let Some(resource) = resources.try_next().await? {
            let resource = Resource::clone(&resource);
            let key = key_of(&resource)?;
            let entry = self.session.layout.owned(&self.generation, &resource);
            let value = record::restored(resource);
            let bytes = key.len() + value.len() + entry.as_ref().map_or(0, Vec::len);
            if batch.records.len() >= BATCH || batch.bytes + bytes > BATCH_BYTES {
                self.write(std::mem::take(&mut batch)).await?;
            }
            batch.bytes += bytes;
            batch.records.insert(key, Staged { value, entry });
        }
        self.write(batch).await
    }

    async fn write(&self, batch: Batch) -> Result<()> {
        let mut success = Vec::with_capacity(2 * batch.records.len());
        for (key, Staged { value, entry }) in batch.records {
            let key = self.session.layout.resource_of_key(&self.generation, &key);
            success.push(RequestOp::put(key, value));
            success.extend(entry.map(|entry| RequestOp::put(entry, Vec::new())));
        }
        if success.is_empty() {
            return Ok(());
        }
        let compare = vec![self.ours()];
        let staged = self.txn(TxnRequest { compare, success, ..TxnRequest::default() }).await?;
        if staged.succeeded { Ok(()) } else { Err(taken_over()) }
    }

    async fn commit(&self) -> Result<()> {
        let layout = &self.session.layout;
        for _ in 0..ATTEMPTS {
            let old = self.session.generation().await?;
            let name = self.generation.as_str().as_bytes().to_vec();
            let request = TxnRequest {
                compare: vec![self.session.guard(&old), self.ours()],
                success: vec![
                    RequestOp::put(layout.current(), name),
                    RequestOp::put(layout.mark(&old), Vec::new()),
                    RequestOp::delete(layout.restoring()),
                ],
                failure: vec![self.session.ask_generation(), RequestOp::get(layout.restoring())],
            };
            let committed = self.session.cluster.txn(&request).await;
            let Answer { response: committed, uncertain } =
                committed.map_err(|failure| failure.into_error(RESTORING))?;
            self.session.seen(committed.revision());
            if committed.succeeded {
                self.session.learn(Some(&self.generation));
                self.clean_up(&old).await;
                return Ok(());
            }
            let mut ranges = committed.into_ranges();
            let current = self.session.learn_from(&ranges.next().unwrap_or_default())?;
            // An attempt whose answer was lost took effect.
            if current.as_ref() == Some(&self.generation) {
                self.clean_up(&old).await;
                return Ok(());
            }
            let restoring = ranges.next().unwrap_or_default().kvs;
            if restoring.first().is_none_or(|kv| kv.value != self.generation.as_str().as_bytes()) {
                if uncertain {
                    // It may have counted until the other one ended.
                    return Err(Error::outcome_unknown(RESTORING, "another restore followed"));
                }
                return Err(taken_over());
            }
        }
        self.abandon().await;
        Err(restored_too_often())
    }

    /// Deletes what was replaced. If that fails, the next restore does it.
    async fn clean_up(&self, old: &Generation) {
        // Another restore that begins deletes it by itself.
        let nobody_restores = Compare::changed_at(self.session.layout.restoring(), 0);
        let keys = self.session.layout.generation(old);
        if let Err(error) = self.delete_if(&nobody_restores, keys).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what a restore replaced is left in etcd"
            );
        }
    }

    /// Deletes what was written aside, if nobody did that already.
    async fn abandon(&self) {
        let keys = self.session.layout.generation(&self.generation);
        let done = async {
            self.delete(keys).await?;
            let success = vec![RequestOp::delete(self.session.layout.restoring())];
            let compare = vec![self.ours()];
            self.txn(TxnRequest { compare, success, ..TxnRequest::default() }).await
        };
        if let Err(error) = done.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what a restore wrote aside is left in etcd"
            );
        }
    }
}

fn taken_over() -> Error {
    Error::Inconsistent { reason: "another restore began meanwhile".to_owned() }
}
