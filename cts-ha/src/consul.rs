//! The part of Consul that locks use, with the consistency and the namespace that they need, and
//! errors that name the missing permission.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use consul_watch::{
    Answer, Consistency, KvStore, QueryOptions, SessionApi, WriteOptions,
    client::{PutCondition, PutOptions},
    types::{KvOp, KvPair, Session, SessionId, SessionRequest, TxnFailure, TxnOutcome},
};

use crate::{Error, Result};

/// Handle on the sessions and the KV store of one namespace.
///
/// Cheap to clone. Created from a [`consul_watch::Client`], or from anything else that implements
/// its two traits.
#[derive(Clone)]
pub struct Consul {
    sessions: Arc<dyn SessionApi>,
    kv: Arc<dyn KvStore>,
    namespace: Option<String>,
}

impl Consul {
    /// Creates a handle on the sessions and keys of `consul`.
    pub fn new<C: SessionApi + KvStore>(consul: C) -> Self {
        let consul = Arc::new(consul);
        let sessions: Arc<dyn SessionApi> = Arc::<C>::clone(&consul);
        Self { sessions, kv: consul, namespace: None }
    }

    /// Returns a copy for an Enterprise namespace, of sessions and keys alike.
    #[must_use]
    pub fn in_namespace(&self, namespace: Option<String>) -> Self {
        Self { namespace, ..self.clone() }
    }

    fn write(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.namespace.clone_from(&self.namespace);
        options
    }

    /// Returns the options of a read, which is never stale, because it decides who holds a lock.
    fn read(&self, index: Option<u64>, wait: Duration) -> QueryOptions {
        let mut options = QueryOptions::default();
        options.namespace.clone_from(&self.namespace);
        options.consistency = Consistency::Consistent;
        options.index = index;
        options.wait = index.map(|_| wait);
        options
    }

    pub(crate) async fn create_session(&self, request: &SessionRequest) -> Result<SessionId> {
        self.sessions.session_create(request, &self.write()).await.map_err(|source| {
            let node = request.node.as_deref().unwrap_or("the agent's node");
            Error::consul("create session", format!("session:write on {node}"), source)
        })
    }

    pub(crate) async fn renew_session(&self, id: &SessionId) -> Result<Option<Session>> {
        self.sessions
            .session_renew(id, &self.write())
            .await
            .map_err(|source| Error::consul("renew session", "session:write", source))
    }

    pub(crate) async fn destroy_session(&self, id: &SessionId) -> Result<()> {
        self.sessions
            .session_destroy(id, &self.write())
            .await
            .map_err(|source| Error::consul("destroy session", "session:write", source))
    }

    /// Reads one key. Blocks for up to `wait` past `index`, if there is one.
    pub(crate) async fn get(
        &self,
        key: &str,
        index: Option<u64>,
        wait: Duration,
    ) -> Result<Answer<Option<KvPair>>> {
        self.kv.kv_get(key, &self.read(index, wait)).await.map_err(|source| {
            Error::consul(format!("read lock: {key}"), key_needs("read", key), source)
        })
    }

    /// Reads all keys below a prefix, as of one index.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        index: Option<u64>,
        wait: Duration,
    ) -> Result<Answer<Vec<KvPair>>> {
        self.kv.kv_list(prefix, &self.read(index, wait)).await.map_err(|source| {
            Error::consul(format!("read {prefix}"), key_needs("read", prefix), source)
        })
    }

    /// Writes a key under a condition; returns `false` if the condition did not hold.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: Bytes,
        flags: u64,
        condition: PutCondition,
    ) -> Result<bool> {
        let mut options = PutOptions::when(condition);
        options.flags = flags;
        options.write = self.write();
        self.kv.kv_put(key, value, &options).await.map_err(|source| {
            Error::consul(format!("write {key}"), key_needs("write", key), source)
        })
    }

    /// Deletes a key if it was last changed at `index`; returns `false` if it has changed since.
    pub(crate) async fn delete_at(&self, key: &str, index: u64) -> Result<bool> {
        let mut options = consul_watch::client::DeleteOptions::at(index);
        options.write = self.write();
        self.kv.kv_delete(key, &options).await.map_err(|source| {
            Error::consul(format!("delete {key}"), key_needs("write", key), source)
        })
    }

    /// Carries out operations in one transaction.
    pub(crate) async fn transact(&self, mut ops: Vec<KvOp>) -> Result<TxnOutcome> {
        for op in &mut ops {
            op.namespace.clone_from(&self.namespace);
        }
        // For messages: the last one is the caller's own write, behind the checks.
        let key = ops.last().map(|op| op.key.clone()).unwrap_or_default();
        let outcome = self.kv.kv_transact(&ops, &self.write()).await.map_err(|source| {
            Error::consul(format!("write {key}"), key_needs("write", &key), source)
        })?;
        if let TxnOutcome::RolledBack(failures) = &outcome
            // Consul reports a denied operation among the failures of the transaction, and not as a
            // refusal of it.
            && let Some(denied) =
                failures.iter().find(|failure| failure.what.contains("Permission denied"))
        {
            let key = ops.get(denied.op_index).map_or(key, |op| op.key.clone());
            return Err(Error::Permission {
                action: format!("write {key}"),
                needs: key_needs("write", &key),
                source: denied.what.clone().into(),
            });
        }
        Ok(outcome)
    }
}

/// Returns the permission on a key, as a policy names it.
fn key_needs(level: &str, key: &str) -> String {
    format!("key:{level} on {key:?}")
}

/// Joins Consul's reasons of all operations that failed.
pub(crate) fn reasons(failures: &[TxnFailure]) -> String {
    failures.iter().map(|failure| failure.what.as_str()).collect::<Vec<_>>().join("; ")
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consul").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
