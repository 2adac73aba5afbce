use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::{
    Client, Result, WriteOptions,
    client::Request,
    types::{KvPair, SessionId, nullable},
};

/// One step of a KV transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnOp {
    /// Writes a key.
    Set {
        /// The key.
        key: String,
        /// Its value.
        value: Bytes,
        /// A number to keep with the value.
        flags: u64,
    },
    /// Writes a key if it was last changed at `index`; 0: if it is absent.
    Cas {
        /// The key.
        key: String,
        /// Its value.
        value: Bytes,
        /// A number to keep with the value.
        flags: u64,
        /// The expected index.
        index: u64,
    },
    /// Writes a key and acquires it as a lock.
    Lock {
        /// The key.
        key: String,
        /// Its value.
        value: Bytes,
        /// A number to keep with the value.
        flags: u64,
        /// The session that is to hold it.
        session: SessionId,
    },
    /// Writes a key and releases its lock.
    Unlock {
        /// The key.
        key: String,
        /// Its value.
        value: Bytes,
        /// A number to keep with the value.
        flags: u64,
        /// The session that holds it.
        session: SessionId,
    },
    /// Reads a key, which must be there.
    Get {
        /// The key.
        key: String,
    },
    /// Reads all keys with a prefix.
    GetTree {
        /// The prefix.
        prefix: String,
    },
    /// Goes on only if a session holds the key.
    CheckSession {
        /// The key.
        key: String,
        /// The session.
        session: SessionId,
    },
    /// Goes on only if the key was last changed at this index.
    CheckIndex {
        /// The key.
        key: String,
        /// The expected index.
        index: u64,
    },
    /// Goes on only if there is no such key.
    CheckNotExists {
        /// The key.
        key: String,
    },
    /// Deletes a key. An absent one counts as deleted.
    Delete {
        /// The key.
        key: String,
    },
    /// Deletes a key if it was last changed at this index.
    DeleteCas {
        /// The key.
        key: String,
        /// The expected index.
        index: u64,
    },
    /// Deletes all keys with a prefix.
    DeleteTree {
        /// The prefix.
        prefix: String,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// All steps took effect, at one index. What was read comes with its
    /// value, what was written without; deletions give nothing.
    Committed(Vec<KvPair>),
    /// Nothing took effect.
    RolledBack(Vec<TxnFailure>),
}

impl TxnOutcome {
    /// Whether all steps took effect.
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }
}

/// Why a step of a transaction did not hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct TxnFailure {
    /// Position of the step, from 0.
    pub op_index: usize,
    /// Consul's words.
    #[serde(default, deserialize_with = "nullable")]
    pub what: String,
}

/// A step as it goes over the wire.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Wire<'a> {
    verb: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

impl TxnOp {
    fn wire(&self) -> Wire<'_> {
        let write = |verb, key, value: &Bytes, flags: &u64| Wire {
            verb,
            key,
            value: Some(crate::types::base64(value)),
            flags: Some(*flags),
            ..Wire::default()
        };
        let plain = |verb, key| Wire {
            verb,
            key,
            ..Wire::default()
        };
        match self {
            Self::Set { key, value, flags } => write("set", key, value, flags),
            Self::Cas {
                key,
                value,
                flags,
                index,
            } => Wire {
                index: Some(*index),
                ..write("cas", key, value, flags)
            },
            Self::Lock {
                key,
                value,
                flags,
                session,
            } => Wire {
                session: Some(session.as_str()),
                ..write("lock", key, value, flags)
            },
            Self::Unlock {
                key,
                value,
                flags,
                session,
            } => Wire {
                session: Some(session.as_str()),
                ..write("unlock", key, value, flags)
            },
            Self::Get { key } => plain("get", key),
            Self::GetTree { prefix } => plain("get-tree", prefix),
            Self::CheckSession { key, session } => Wire {
                session: Some(session.as_str()),
                ..plain("check-session", key)
            },
            Self::CheckIndex { key, index } => Wire {
                index: Some(*index),
                ..plain("check-index", key)
            },
            Self::CheckNotExists { key } => plain("check-not-exists", key),
            Self::Delete { key } => plain("delete", key),
            Self::DeleteCas { key, index } => Wire {
                index: Some(*index),
                ..plain("delete-cas", key)
            },
            Self::DeleteTree { prefix } => plain("delete-tree", prefix),
        }
    }
}

/// Transactions.
impl Client {
    /// Carries out KV steps all together or not at all.
    ///
    /// Consul takes 128 steps (64 before 1.14) and 512 KiB in all. Keys that
    /// have no URL can be reached this way.
    ///
    /// # Errors
    ///
    /// Those of [`Client::send`]. A step that does not hold is no error, see [`TxnOutcome`].
    pub async fn kv_transact(&self, ops: &[TxnOp], options: &WriteOptions) -> Result<TxnOutcome> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            #[serde(default, deserialize_with = "nullable")]
            results: Vec<Item>,
            #[serde(default, deserialize_with = "nullable")]
            errors: Vec<TxnFailure>,
        }
        #[derive(Deserialize)]
        struct Item {
            #[serde(rename = "KV")]
            kv: Option<KvPair>,
        }
        let steps: Vec<_> = ops
            .iter()
            .map(|op| serde_json::json!({ "KV": op.wire() }))
            .collect();
        let request = Request::put("txn", "/v1/txn").json(&steps).write(options);
        let response = self.send(request.accept(StatusCode::CONFLICT)).await?;
        let answer: Answer = response.json()?;
        if response.status() == StatusCode::CONFLICT {
            return Ok(TxnOutcome::RolledBack(answer.errors));
        }
        Ok(TxnOutcome::Committed(
            answer
                .results
                .into_iter()
                .filter_map(|item| item.kv)
                .collect(),
        ))
    }
}
