//! `KvStore`: calls of `/v1/kv`, as a trait that other crates take.

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, TxnOptions, present},
    types::{KvOp, KvPair, SessionId, TxnOp, TxnOutcome},
};

/// The KV store, for those who need nothing else of Consul.
#[async_trait]
pub trait KvStore: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the pair of a key; `None` when it is absent, with the index to block on.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn kv_get(&self, key: &str, options: &QueryOptions) -> Result<Answer<Option<KvPair>>>;

    /// Lists all keys that begin with `prefix`, in the order of their bytes.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn kv_list(&self, prefix: &str, options: &QueryOptions) -> Result<Answer<Vec<KvPair>>>;

    /// Writes a key; `false` when its condition did not hold.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn kv_put(&self, key: &str, value: Bytes, options: &PutOptions) -> Result<bool>;

    /// Deletes a key or a prefix; `false` when its condition did not hold.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn kv_delete(&self, key: &str, options: &DeleteOptions) -> Result<bool>;

    /// Carries out steps all together or not at all.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]). A step that does not
    /// hold is no error.
    async fn kv_transact(&self, ops: &[KvOp], options: &WriteOptions) -> Result<TxnOutcome>;
}

#[async_trait]
impl KvStore for Client {
    async fn kv_get(&self, key: &str, options: &QueryOptions) -> Result<Answer<Option<KvPair>>> {
        Self::kv_get(self, key, options).await
    }

    async fn kv_list(&self, prefix: &str, options: &QueryOptions) -> Result<Answer<Vec<KvPair>>> {
        Self::kv_list(self, prefix, options).await
    }

    async fn kv_put(&self, key: &str, value: Bytes, options: &PutOptions) -> Result<bool> {
        Self::kv_put(self, key, value, options).await
    }

    async fn kv_delete(&self, key: &str, options: &DeleteOptions) -> Result<bool> {
        Self::kv_delete(self, key, options).await
    }

    async fn kv_transact(&self, ops: &[KvOp], options: &WriteOptions) -> Result<TxnOutcome> {
        Self::kv_transact(self, ops, options).await
    }
}

/// Options of a KV write besides key and value. The default writes unconditionally.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PutOptions {
    /// A number to keep with the value.
    pub flags: u64,
    /// Condition for the write to take effect.
    pub condition: Option<PutCondition>,
    /// Options that every write takes.
    pub write: WriteOptions,
}

impl PutOptions {
    /// Write under this condition.
    pub fn when(condition: PutCondition) -> Self {
        Self { condition: Some(condition), ..Self::default() }
    }
}

/// A condition for a KV write to take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutCondition {
    /// The key was last changed at this index; 0: there is no such key.
    Index(u64),
    /// The session holds the key as a lock, or can acquire it.
    Acquire(SessionId),
    /// The session holds the key as a lock, which is released.
    Release(SessionId),
}

/// Options of a KV deletion besides the key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Delete every key that begins with the given one. Excludes `index`.
    pub recurse: bool,
    /// Delete only if the key was last changed at this index. An absent key counts as deleted.
    pub index: Option<u64>,
    /// Options that every write takes.
    pub write: WriteOptions,
}

impl DeleteOptions {
    /// Delete every key that begins with the given one.
    pub fn recurse() -> Self {
        Self { recurse: true, ..Self::default() }
    }

    /// Delete only if the key was last changed at this index.
    pub fn at(index: u64) -> Self {
        Self { index: Some(index), ..Self::default() }
    }
}

/// The KV store.
impl Client {
    /// Carries out operations on keys all together or not at all; see [`Client::txn`].
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error. A transaction that was rolled back is no
    /// error but [`TxnOutcome::RolledBack`].
    pub async fn kv_transact(&self, ops: &[KvOp], options: &WriteOptions) -> Result<TxnOutcome> {
        let ops: Vec<TxnOp> = ops.iter().cloned().map(TxnOp::from).collect();
        let options = TxnOptions { write: options.clone(), ..TxnOptions::default() };
        self.txn(&ops, &options).await
    }

    /// Returns the pair of a key; `None` when it is absent, with the index to block on.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]);
    /// [`crate::Error::Input`] for a key that has no URL.
    pub async fn kv_get(
        &self,
        key: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<KvPair>>> {
        let response = self.send(read("kv.get", key).query(options)).await?;
        let pairs: Option<Vec<KvPair>> = present(&response)?;
        Ok(Answer::new(pairs.and_then(|pairs| pairs.into_iter().next()), response.into_meta()))
    }

    /// Lists all keys that begin with `prefix`, in the order of their bytes.
    ///
    /// # Errors
    ///
    /// As [`Client::kv_get`].
    pub async fn kv_list(
        &self,
        prefix: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<KvPair>>> {
        let response = self.send(read("kv.list", prefix).flag("recurse").query(options)).await?;
        let pairs: Option<Option<Vec<KvPair>>> = present(&response)?;
        Ok(Answer::new(pairs.flatten().unwrap_or_default(), response.into_meta()))
    }

    /// The names of all keys that begin with `prefix`. With a separator they
    /// are cut after its first occurrence past the prefix, each once.
    ///
    /// # Errors
    ///
    /// As [`Client::kv_get`].
    pub async fn kv_keys(
        &self,
        prefix: &str,
        separator: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<String>>> {
        let mut request = read("kv.keys", prefix).flag("keys");
        if let Some(separator) = separator {
            request = request.param("separator", separator);
        }
        let response = self.send(request.query(options)).await?;
        let keys: Option<Option<Vec<String>>> = present(&response)?;
        Ok(Answer::new(keys.flatten().unwrap_or_default(), response.into_meta()))
    }

    /// The bytes of one key, without base64 in between; `None` when it is absent.
    ///
    /// # Errors
    ///
    /// As [`Client::kv_get`].
    pub async fn kv_raw(&self, key: &str, options: &QueryOptions) -> Result<Answer<Option<Bytes>>> {
        let response = self.send(read("kv.get", key).flag("raw").query(options)).await?;
        let value = (response.status() != StatusCode::NOT_FOUND).then(|| response.body().clone());
        Ok(Answer::new(value, response.into_meta()))
    }

    /// Writes a key; `false` when its condition did not hold.
    ///
    /// # Errors
    ///
    /// As [`Client::kv_get`].
    pub async fn kv_put(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        options: &PutOptions,
    ) -> Result<bool> {
        let mut request = Request::put("kv.put", "/v1/kv").key(key).bytes(value.into());
        if options.flags != 0 {
            request = request.param("flags", options.flags.to_string());
        }
        request = match &options.condition {
            None => request,
            Some(PutCondition::Index(index)) => request.param("cas", index.to_string()),
            Some(PutCondition::Acquire(session)) => request.param("acquire", session.as_str()),
            Some(PutCondition::Release(session)) => request.param("release", session.as_str()),
        };
        self.decide(request.write(&options.write)).await
    }

    /// Deletes a key or a prefix; `false` when its condition did not hold.
    /// What is not there counts as deleted.
    ///
    /// # Errors
    ///
    /// As [`Client::kv_get`].
    pub async fn kv_delete(&self, key: &str, options: &DeleteOptions) -> Result<bool> {
        let mut request =
            Request::delete("kv.delete", "/v1/kv").key(key).flag_if("recurse", options.recurse);
        if let Some(index) = options.index {
            request = request.param("cas", index.to_string());
        }
        self.decide(request.write(&options.write)).await
    }
}

fn read(operation: &'static str, key: &str) -> Request {
    // Its 404 has the index to block on, so that a key can be waited for that is not there yet.
    // Source: Consul docs api-docs/kv#read-key.
    Request::get(operation, "/v1/kv").key(key).accept(StatusCode::NOT_FOUND)
}
