//! The part of etcd's API that is used, generated from `proto/etcd/`.

pub(crate) use crate::pb::generated::etcdserverpb::*;

use self::{
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request,
    response_op::Response,
};

impl Compare {
    /// The key has this value.
    pub(crate) fn value_is(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self::equal(key, CompareTarget::Value, TargetUnion::Value(value))
    }

    /// The key was last changed at this revision; 0 if there is none.
    pub(crate) fn changed_at(key: Vec<u8>, revision: i64) -> Self {
        Self::equal(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
    }

    fn equal(key: Vec<u8>, target: CompareTarget, union: TargetUnion) -> Self {
        Self {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key,
            target_union: Some(union),
        }
    }
}

impl RequestOp {
    pub(crate) fn get(key: Vec<u8>) -> Self {
        Self::range(RangeRequest { key, ..RangeRequest::default() })
    }

    pub(crate) fn range(request: RangeRequest) -> Self {
        Self { request: Some(Request::Range(request)) }
    }

    pub(crate) fn put(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { request: Some(Request::Put(PutRequest { key, value })) }
    }

    pub(crate) fn delete(key: Vec<u8>) -> Self {
        Self::delete_range(key, Vec::new())
    }

    /// Deletes from a key on to before another.
    pub(crate) fn delete_range(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        let request = DeleteRangeRequest { key, range_end };
        Self { request: Some(Request::DeleteRange(request)) }
    }
}

impl TxnRequest {
    /// Only reads, whatever is there.
    pub(crate) fn reads(operations: Vec<RequestOp>) -> Self {
        Self { success: operations, ..Self::default() }
    }

    /// Returns `true` if it may do more than read.
    pub(crate) fn is_change(&self) -> bool {
        let reads = |operation: &RequestOp| matches!(operation.request, Some(Request::Range(_)));
        !self.success.iter().chain(&self.failure).all(reads)
    }

    /// Asks for what the member knows, without asking the others.
    #[must_use]
    pub(crate) fn serializable(mut self) -> Self {
        for operation in self.success.iter_mut().chain(&mut self.failure) {
            if let Some(Request::Range(range)) = &mut operation.request {
                range.serializable = true;
            }
        }
        self
    }
}

impl TxnResponse {
    /// The revision of the store when this was answered.
    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// Returns the results of the request's ranges, in their order.
    pub(crate) fn into_ranges(self) -> impl Iterator<Item = RangeResponse> {
        self.responses.into_iter().filter_map(|operation| match operation.response {
            Some(Response::Range(range)) => Some(range),
            _ => None,
        })
    }

    /// Returns the result of the request's range, if it has one.
    pub(crate) fn into_range(self) -> RangeResponse {
        self.into_ranges().next().unwrap_or_default()
    }
}
