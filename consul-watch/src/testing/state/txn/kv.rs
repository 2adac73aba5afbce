//! Steps of a transaction on the KV store.

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    testing::{
        acl::{Access, Authorizer, Resource},
        state::{KvCondition, Refused, State},
    },
    types::{KvPair, SessionId, from_base64, nullable},
};

/// A step about a key, as it comes over the wire.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct KvStep {
    #[serde(default, deserialize_with = "nullable")]
    verb: String,
    #[serde(default, deserialize_with = "nullable")]
    key: String,
    #[serde(default, deserialize_with = "from_base64")]
    value: Bytes,
    #[serde(default, deserialize_with = "nullable")]
    flags: u64,
    #[serde(default, deserialize_with = "nullable")]
    index: u64,
    #[serde(default, deserialize_with = "nullable")]
    session: String,
    // Enterprise's; other servers take them too.
    #[serde(default, rename = "Namespace")]
    _namespace: Option<String>,
    #[serde(default, rename = "Partition")]
    _partition: Option<String>,
}

impl KvStep {
    /// Refuses what the token may not do. Reads of values are not refused:
    /// their results are left out.
    pub(super) fn validate(&self, who: &Authorizer) -> Result<(), Refused> {
        match self.verb.as_str() {
            "get" | "get-or-empty" | "get-tree" => Ok(()),
            "delete-tree" => who.require_tree(&self.key),
            "check-session" | "check-index" => who.require(Resource::Key, &self.key, Access::Read),
            _ => who.require(Resource::Key, &self.key, Access::Write),
        }
    }

    /// `true` for verbs that write.
    pub(super) fn writes(&self) -> bool {
        const WRITES: [&str; 7] =
            ["set", "delete", "delete-cas", "delete-tree", "cas", "lock", "unlock"];
        WRITES.contains(&self.verb.as_str())
    }

    /// Returns `true` if the step gives its value back.
    fn reads(&self) -> bool {
        self.verb.starts_with("get")
    }
}

impl State {
    /// Carries out a step and gives the keys that it has read or written.
    pub(super) fn kv_step(&mut self, step: &KvStep, now: Instant) -> Result<Vec<KvPair>, String> {
        let mut pairs = self.read_or_write(step, now)?;
        if !step.reads() {
            for pair in &mut pairs {
                pair.value = Bytes::new();
            }
        }
        Ok(pairs)
    }

    fn read_or_write(&mut self, step: &KvStep, now: Instant) -> Result<Vec<KvPair>, String> {
        let KvStep { verb, key, session, .. } = step;
        if key.is_empty() && !matches!(verb.as_str(), "get-tree" | "delete-tree") {
            return Err("Must provide key".to_owned());
        }
        let pair = self.kv_get(key).0;
        let missing = || format!("key {key:?} doesn't exist");
        match verb.as_str() {
            "set" | "cas" | "lock" | "unlock" => return self.write_step(step, now),
            "get" => return pair.map(|pair| vec![pair]).ok_or_else(missing),
            "get-or-empty" if !self.is_1_8() => {
                return Ok(vec![
                    pair.unwrap_or_else(|| KvPair { key: key.clone(), ..KvPair::default() }),
                ]);
            }
            "get-tree" => return Ok(self.kv_list(key).0),
            "check-session" => {
                let holder = pair
                    .ok_or_else(|| format!("failed to check session, key {key:?} doesn't exist"))?
                    .session;
                let current = holder.as_ref().map_or("", SessionId::as_str);
                if current != session {
                    return Err(format!(
                        "failed session check for key {key:?}, current session {current:?} != {session:?}"
                    ));
                }
            }
            "check-index" => {
                let pair = pair
                    .ok_or_else(|| format!("failed to check index, key {key:?} doesn't exist"))?;
                if pair.modify_index != step.index {
                    let (is, wanted) = (pair.modify_index, step.index);
                    return Err(format!(
                        "failed index check for key {key:?}, current modify index {is} != {wanted}"
                    ));
                }
                return Ok(vec![pair]);
            }
            "check-not-exists" => {
                if pair.is_some() {
                    return Err(format!("key {key:?} exists"));
                }
                return Ok(Vec::new());
            }
            "delete" => {
                self.kv_delete(key, None);
                return Ok(Vec::new());
            }
            "delete-cas" => {
                let done = self.kv_delete(key, Some(step.index));
                return if done {
                    Ok(Vec::new())
                } else {
                    Err(format!("failed to delete key {key:?}, index is stale"))
                };
            }
            "delete-tree" => {
                self.kv_delete_tree(key);
                return Ok(Vec::new());
            }
            other if self.is_1_8() => return Err(format!("unknown KV verb {other:?}")),
            other => return Err(format!("unknown KV operation: {other}")),
        }
        Ok(self.kv_get(key).0.into_iter().collect())
    }

    fn write_step(&mut self, step: &KvStep, now: Instant) -> Result<Vec<KvPair>, String> {
        let KvStep { verb, key, .. } = step;
        let (condition, what) = match verb.as_str() {
            "cas" => {
                let condition = KvCondition { cas: Some(step.index), ..KvCondition::default() };
                (condition, format!("failed to set key {key:?}, index is stale"))
            }
            "lock" => {
                let condition =
                    KvCondition { acquire: Some(step.session.clone()), ..KvCondition::default() };
                (condition, format!("failed to lock key {key:?}, lock is already held"))
            }
            "unlock" => {
                let condition =
                    KvCondition { release: Some(step.session.clone()), ..KvCondition::default() };
                (
                    condition,
                    format!(
                        "failed to unlock key {key:?}, lock isn't held, or is held by another session"
                    ),
                )
            }
            _ => (KvCondition::default(), String::new()),
        };
        let delayed = verb == "lock"
            && self.kv_get(key).0.is_none_or(|pair| pair.session.is_none())
            && self.is_delayed(key, now);
        let what =
            if delayed { format!("failed to lock key {key:?} due to lock delay") } else { what };
        match self.kv_put(key, step.value.clone(), step.flags, &condition, now) {
            Ok(true) => Ok(self.kv_get(key).0.into_iter().collect()),
            Ok(false) => Err(what),
            Err(refused) => {
                let plain = refused.text.strip_prefix("raft apply failed: ");
                Err(plain.map_or(refused.text.clone(), str::to_owned))
            }
        }
    }
}
