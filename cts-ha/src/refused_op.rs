//! The operations of a batch that Consul refused.

use std::fmt;

use consul_watch::types::{KvOp, TxnFailure};

/// Operation of a batch that Consul refused, so that nothing of the batch was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedOp {
    /// Index of the operation in the caller's batch, from 0.
    pub index: usize,
    /// Verb of the operation in Consul's spelling, such as `cas`.
    pub verb: String,
    /// Key of the operation.
    pub key: String,
    /// Reason in Consul's words.
    pub reason: String,
}

impl RefusedOp {
    /// Converts a failure of a transaction that began with the check of the lock.
    pub(crate) fn new(ops: &[KvOp], failure: TxnFailure) -> Self {
        // The check is operation 0, and not the caller's.
        let index = failure.op_index.saturating_sub(1);
        let op = ops.get(index);
        Self {
            index,
            verb: op.map(|op| op.verb.to_string()).unwrap_or_default(),
            key: op.map(|op| op.key.clone()).unwrap_or_default(),
            reason: failure.what,
        }
    }
}

impl fmt::Display for RefusedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, verb, key, reason } = self;
        write!(f, "operation {index} ({verb} {key}): {reason}")
    }
}
