//! What a [`TestEtcd`](super::TestEtcd) holds: every value that a key had.

use std::collections::{BTreeMap, HashSet};

use prost::Message as _;
use tonic::Status;

use super::header;
use crate::backend::etcd::pb::{
    Compare, DeleteRangeResponse, Event, KeyValue, PutResponse, RangeRequest, RangeResponse,
    ResponseOp, TxnRequest, TxnResponse,
    compare::{CompareResult, CompareTarget, TargetUnion},
    event::EventType,
    request_op::Request,
    response_op::Response,
};

/// Etcd's limits, as it has them by default.
const MOST_OPERATIONS: usize = 128;
const LARGEST_REQUEST: usize = 3 << 19;

/// The values of all keys, with their past.
#[derive(Debug)]
pub(super) struct Store {
    revision: i64,
    compacted: i64,
    /// Values of each key by the revision from which it has them; nothing where it
    /// was deleted.
    keys: BTreeMap<Vec<u8>, BTreeMap<i64, Option<KeyValue>>>,
}

impl Default for Store {
    fn default() -> Self {
        Self { revision: 1, compacted: 0, keys: BTreeMap::new() }
    }
}

/// Returns `true` if a key is in a range as etcd gives them.
fn covers(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

impl Store {
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        for values in self.keys.values_mut() {
            let latest = values.keys().next_back().copied().unwrap_or(0);
            *values = values.split_off(&latest);
        }
        self.keys.retain(|_, values| values.values().any(Option::is_some));
    }

    pub(super) fn count(&self) -> usize {
        self.keys
            .values()
            .filter(|values| matches!(values.values().next_back(), Some(Some(_))))
            .count()
    }

    /// A key at a revision.
    fn at(&self, key: &[u8], revision: i64) -> Option<&KeyValue> {
        self.keys.get(key)?.range(..=revision).next_back()?.1.as_ref()
    }

    pub(super) fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        if request.encoded_len() > LARGEST_REQUEST {
            return Err(Status::invalid_argument("etcdserver: request is too large"));
        }
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        for operations in [&request.compare.len(), &request.success.len(), &request.failure.len()] {
            if *operations > MOST_OPERATIONS {
                return Err(Status::invalid_argument(
                    "etcdserver: too many operations in txn request",
                ));
            }
        }
        let operations = if succeeded { &request.success } else { &request.failure };
        let requests: Vec<_> =
            operations.iter().filter_map(|operation| operation.request.as_ref()).collect();
        let mut put = HashSet::new();
        for request in &requests {
            if let Request::Put(request) = request
                && !put.insert(&request.key)
            {
                return Err(Status::invalid_argument(
                    "etcdserver: duplicate key given in txn request",
                ));
            }
        }
        let next = self.revision + 1;
        let mut responses = Vec::new();
        for request in requests {
            let response = match request {
                Request::Range(range) => Response::Range(self.range(range)?),
                Request::Put(put) => {
                    self.put(&put.key, &put.value, next);
                    Response::Put(PutResponse::default())
                }
                Request::DeleteRange(range) => {
                    let deleted = self.delete(&range.key, &range.range_end, next);
                    Response::DeleteRange(DeleteRangeResponse { header: None, deleted })
                }
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        Ok(TxnResponse { header: Some(header(self.revision)), succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let stored = self.at(&compare.key, self.revision);
        let equal = match (compare.target(), &compare.target_union) {
            (CompareTarget::Value, Some(TargetUnion::Value(value))) => {
                stored.is_some_and(|stored| stored.value == *value)
            }
            (CompareTarget::Mod, Some(TargetUnion::ModRevision(revision))) => {
                stored.map_or(0, |stored| stored.mod_revision) == *revision
            }
            _ => false,
        };
        compare.result() == CompareResult::Equal && equal
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        let revision = if request.revision > 0 { request.revision } else { self.revision };
        if revision > self.revision {
            return Err(Status::out_of_range(
                "etcdserver: mvcc: required revision is a future revision",
            ));
        }
        if revision < self.compacted {
            return Err(Status::out_of_range(
                "etcdserver: mvcc: required revision has been compacted",
            ));
        }
        let in_range = |key: &&Vec<u8>| covers(&request.key, &request.range_end, key);
        let found: Vec<_> = self
            .keys
            .keys()
            .filter(in_range)
            .filter_map(|key| self.at(key, revision))
            .cloned()
            .collect();
        let count = found.len();
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        let mut kvs: Vec<_> = found.into_iter().take(limit.unwrap_or(usize::MAX)).collect();
        if request.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
            }
        }
        let more = kvs.len() < count;
        Ok(RangeResponse { header: None, kvs, more, count: i64::try_from(count).unwrap_or(0) })
    }

    fn put(&mut self, key: &[u8], value: &[u8], revision: i64) {
        let (created, version) = self
            .at(key, revision)
            .map_or((revision, 1), |stored| (stored.create_revision, stored.version + 1));
        let stored = KeyValue {
            key: key.to_vec(),
            create_revision: created,
            mod_revision: revision,
            version,
            value: value.to_vec(),
        };
        self.keys.entry(key.to_vec()).or_default().insert(revision, Some(stored));
        self.revision = revision;
    }

    fn delete(&mut self, start: &[u8], end: &[u8], revision: i64) -> i64 {
        let mut deleted = 0;
        for (key, values) in &mut self.keys {
            if covers(start, end, key) && matches!(values.values().next_back(), Some(Some(_))) {
                values.insert(revision, None);
                deleted += 1;
            }
        }
        if deleted > 0 {
            self.revision = revision;
        }
        deleted
    }

    /// Returns the changes in a range from a revision on; the error is the revision
    /// up to which they are forgotten.
    pub(super) fn changes(&self, start: &[u8], end: &[u8], from: i64) -> Result<Vec<Event>, i64> {
        if from <= self.compacted {
            return Err(self.compacted);
        }
        let mut changes = Vec::new();
        for (key, values) in self.keys.iter().filter(|(key, _)| covers(start, end, key)) {
            for (revision, value) in values.range(from..) {
                let gone =
                    KeyValue { key: key.clone(), mod_revision: *revision, ..KeyValue::default() };
                let kind = if value.is_some() { EventType::Put } else { EventType::Delete };
                let event = Event {
                    r#type: kind.into(),
                    kv: Some(value.clone().unwrap_or(gone)),
                    prev_kv: self.at(key, revision - 1).cloned(),
                };
                changes.push((*revision, event));
            }
        }
        changes.sort_by_key(|(revision, _)| *revision);
        Ok(changes.into_iter().map(|(_, event)| event).collect())
    }
}
