//! Operations, results and errors of transactions.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    HealthCheck, KvPair, Node, Service, SessionId, is_zero, kv::to_base64, nullable, words,
};

/// An operation of a transaction.
///
/// ```
/// use consul_watch::types::{KvOp, TxnOp};
///
/// let operations: [TxnOp; 2] =
///     [KvOp::check_index("lock", 7).into(), KvOp::set("state", "on").into()];
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub enum TxnOp {
    /// An operation on a key.
    #[serde(rename = "KV")]
    Kv(KvOp),
    /// An operation on a node.
    Node(NodeOp),
    /// An operation on an instance of a service.
    Service(Box<ServiceOp>),
    /// An operation on a check.
    Check(Box<CheckOp>),
}

impl From<KvOp> for TxnOp {
    fn from(op: KvOp) -> Self {
        Self::Kv(op)
    }
}

impl From<NodeOp> for TxnOp {
    fn from(op: NodeOp) -> Self {
        Self::Node(op)
    }
}

impl From<ServiceOp> for TxnOp {
    fn from(op: ServiceOp) -> Self {
        Self::Service(Box::new(op))
    }
}

impl From<CheckOp> for TxnOp {
    fn from(op: CheckOp) -> Self {
        Self::Check(Box::new(op))
    }
}

words! {
    /// Verb of a transaction on a key.
    KvVerb {
        /// Writes it.
        Set = "set",
        /// Deletes it; an absent one counts as deleted.
        Delete = "delete",
        /// Deletes it if it was last changed at the index.
        DeleteCas = "delete-cas",
        /// Deletes every key that begins with it.
        DeleteTree = "delete-tree",
        /// Writes it if it was last changed at the index; 0: if it is absent.
        Cas = "cas",
        /// Writes it and acquires it for the session.
        Lock = "lock",
        /// Writes it and releases it from the session.
        Unlock = "unlock",
        /// Reads it; fails if it is absent.
        Get = "get",
        /// Reads it, or gives an empty one (Consul 1.14).
        GetOrEmpty = "get-or-empty",
        /// Reads every key that begins with it.
        GetTree = "get-tree",
        /// Fails unless the session holds it.
        CheckSession = "check-session",
        /// Fails unless it was last changed at the index.
        CheckIndex = "check-index",
        /// Fails if it exists.
        CheckNotExists = "check-not-exists",
    }
}

/// An operation on a key. Keys that no URL can hold are fine here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct KvOp {
    /// Verb of the operation.
    pub verb: KvVerb,
    /// The key, or the prefix of keys.
    pub key: String,
    /// Value to write.
    #[serde(skip_serializing_if = "Bytes::is_empty", serialize_with = "to_base64")]
    pub value: Bytes,
    /// A number to keep with the value.
    #[serde(skip_serializing_if = "is_zero")]
    pub flags: u64,
    /// The index to compare with.
    #[serde(skip_serializing_if = "is_zero")]
    pub index: u64,
    /// The session of a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Enterprise namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Enterprise partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl KvOp {
    /// An operation that takes nothing but the key.
    pub fn new(verb: KvVerb, key: impl Into<String>) -> Self {
        Self {
            verb,
            key: key.into(),
            value: Bytes::new(),
            flags: 0,
            index: 0,
            session: None,
            namespace: None,
            partition: None,
        }
    }

    /// Writes the key.
    pub fn set(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self { value: value.into(), ..Self::new(KvVerb::Set, key) }
    }

    /// Writes the key if it was last changed at `index`; 0: if it is absent.
    pub fn cas(key: impl Into<String>, value: impl Into<Bytes>, index: u64) -> Self {
        Self { value: value.into(), index, ..Self::new(KvVerb::Cas, key) }
    }

    /// Writes the key and acquires it for the session.
    pub fn lock(key: impl Into<String>, value: impl Into<Bytes>, session: SessionId) -> Self {
        Self { value: value.into(), session: Some(session), ..Self::new(KvVerb::Lock, key) }
    }

    /// Writes the key and releases it from the session.
    pub fn unlock(key: impl Into<String>, value: impl Into<Bytes>, session: SessionId) -> Self {
        Self { value: value.into(), session: Some(session), ..Self::new(KvVerb::Unlock, key) }
    }

    /// Reads the key; fails if it is absent.
    pub fn get(key: impl Into<String>) -> Self {
        Self::new(KvVerb::Get, key)
    }

    /// Deletes the key; an absent one counts as deleted.
    pub fn delete(key: impl Into<String>) -> Self {
        Self::new(KvVerb::Delete, key)
    }

    /// Deletes the key if it was last changed at `index`.
    pub fn delete_cas(key: impl Into<String>, index: u64) -> Self {
        Self { index, ..Self::new(KvVerb::DeleteCas, key) }
    }

    /// Fails unless the session holds the key.
    pub fn check_session(key: impl Into<String>, session: SessionId) -> Self {
        Self { session: Some(session), ..Self::new(KvVerb::CheckSession, key) }
    }

    /// Fails unless the key was last changed at `index`.
    pub fn check_index(key: impl Into<String>, index: u64) -> Self {
        Self { index, ..Self::new(KvVerb::CheckIndex, key) }
    }

    /// Fails if the key exists.
    pub fn check_not_exists(key: impl Into<String>) -> Self {
        Self::new(KvVerb::CheckNotExists, key)
    }

    /// Deletes every key that begins with `prefix`.
    pub fn delete_tree(prefix: impl Into<String>) -> Self {
        Self::new(KvVerb::DeleteTree, prefix)
    }

    /// Reads every key that begins with `prefix`.
    pub fn get_tree(prefix: impl Into<String>) -> Self {
        Self::new(KvVerb::GetTree, prefix)
    }

    /// This operation with a number to keep with the value.
    #[must_use]
    pub fn with_flags(mut self, flags: u64) -> Self {
        self.flags = flags;
        self
    }
}

words! {
    /// Verb of a transaction on an object of the catalog.
    CatalogVerb {
        /// Reads it; fails if it is absent.
        Get = "get",
        /// Writes it.
        Set = "set",
        /// Writes it if its `modify_index` is the stored one.
        Cas = "cas",
        /// Deletes it.
        Delete = "delete",
        /// Deletes it if its `modify_index` is the stored one.
        DeleteCas = "delete-cas",
    }
}

/// An operation on a node of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeOp {
    /// Verb of the operation.
    pub verb: CatalogVerb,
    /// The node.
    pub node: Node,
}

/// An operation on an instance of a service.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceOp {
    /// Verb of the operation.
    pub verb: CatalogVerb,
    /// Name of its node.
    pub node: String,
    /// The instance.
    pub service: Service,
}

/// An operation on a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CheckOp {
    /// Verb of the operation.
    pub verb: CatalogVerb,
    /// The check, with the name of its node.
    pub check: HealthCheck,
}

/// Outcome of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum TxnOutcome {
    /// Everything took effect, at one index.
    Committed(Vec<TxnResult>),
    /// Nothing took effect; the reasons, for each operation that could not.
    RolledBack(Vec<TxnFailure>),
}

impl TxnOutcome {
    /// Returns `true` if everything took effect.
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }

    /// The results, or the reasons why nothing took effect.
    ///
    /// # Errors
    ///
    /// The failures of a transaction that was rolled back.
    pub fn into_result(self) -> Result<Vec<TxnResult>, Vec<TxnFailure>> {
        match self {
            Self::Committed(results) => Ok(results),
            Self::RolledBack(failures) => Err(failures),
        }
    }

    /// The keys that were read or written; none if nothing took effect.
    pub fn pairs(&self) -> impl Iterator<Item = &KvPair> {
        let results = match self {
            Self::Committed(results) => results.as_slice(),
            Self::RolledBack(_) => &[],
        };
        results.iter().filter_map(|result| match result {
            TxnResult::Kv(pair) => Some(pair),
            _ => None,
        })
    }
}

/// An object that a transaction has read or written.
///
/// Deletions and checks give none, [`KvVerb::GetTree`] many, and a key that the token may not
/// read is left out. The value of a key is there only if it was read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "WireResult")]
#[non_exhaustive]
pub enum TxnResult {
    /// A key.
    Kv(KvPair),
    /// A node.
    Node(Node),
    /// An instance of a service.
    Service(Box<Service>),
    /// A check.
    Check(Box<HealthCheck>),
    /// Something that this crate does not know.
    Other,
}

/// The reason why one operation of a transaction could not take effect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct TxnFailure {
    /// The operation, counted from 0.
    pub op_index: usize,
    /// Consul's text, such as `failed to set key "k", index is stale`.
    #[serde(default, deserialize_with = "nullable")]
    pub what: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct WireResult {
    #[serde(rename = "KV")]
    kv: Option<KvPair>,
    node: Option<Node>,
    service: Option<Service>,
    check: Option<HealthCheck>,
}

impl From<WireResult> for TxnResult {
    fn from(wire: WireResult) -> Self {
        match wire {
            WireResult { kv: Some(pair), .. } => Self::Kv(pair),
            WireResult { node: Some(node), .. } => Self::Node(node),
            WireResult { service: Some(service), .. } => Self::Service(Box::new(service)),
            WireResult { check: Some(check), .. } => Self::Check(Box::new(check)),
            WireResult { .. } => Self::Other,
        }
    }
}

/// The whole answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TxnAnswer {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) results: Vec<TxnResult>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) errors: Vec<TxnFailure>,
}
