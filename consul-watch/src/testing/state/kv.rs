//! The double's KV store: pairs, locks and tombstones.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Refused, Seen, State, tables::KeyRecord};
use crate::types::KvPair;

/// The condition of a KV write.
#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct KvCondition {
    pub(in crate::testing) cas: Option<u64>,
    pub(in crate::testing) acquire: Option<String>,
    pub(in crate::testing) release: Option<String>,
}

impl State {
    pub(in crate::testing) fn kv_get(&self, key: &str) -> (Option<KvPair>, Seen) {
        if let Some(record) = self.keys.get(key) {
            return (Some(pair(key, record)), Seen::by_index(record.modify_index));
        }
        let index = self.tables.kvs.max(self.tables.tombstones);
        // Before 1.11.4 any write to the store wakes who waits for a missing key.
        let seen =
            if self.is_1_8() { Seen::by_index(index) } else { Seen::by_content(index, &"absent") };
        (None, seen)
    }

    pub(in crate::testing) fn kv_list(&self, prefix: &str) -> (Vec<KvPair>, Seen) {
        let pairs: Vec<KvPair> =
            self.under(prefix).map(|(key, record)| pair(key, record)).collect();
        let graves = self
            .tombstones
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(_, index)| *index)
            .max();
        let graves = graves.unwrap_or(0);
        let newest = pairs.iter().map(|pair| pair.modify_index).max().unwrap_or(0);
        let tables = self.tables.kvs.max(self.tables.tombstones);
        if prefix.is_empty() {
            return (pairs, Seen::by_index(tables));
        }
        let index = if newest == 0 && graves == 0 { tables } else { newest.max(graves) };
        let content: Vec<(&str, u64)> =
            pairs.iter().map(|pair| (pair.key.as_str(), pair.modify_index)).collect();
        let seen = Seen::by_content(index, &(content, graves));
        (pairs, seen)
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a KeyRecord)> {
        self.keys.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Writes a key; `false` when its condition does not hold.
    pub(in crate::testing) fn kv_put(
        &mut self,
        key: &str,
        value: Bytes,
        flags: u64,
        condition: &KvCondition,
        now: Instant,
    ) -> Result<bool, Refused> {
        if let Some(session) = condition.acquire.as_ref().or(condition.release.as_ref())
            && condition.acquire.is_some()
            && !self.sessions.contains_key(session)
        {
            let problem = match session.as_str() {
                "" => "missing session".to_owned(),
                short if self.is_1_8() && short.len() != 36 => {
                    "failed session lookup: index error: UUID must be 36 characters".to_owned()
                }
                other => format!("invalid session {other:?}"),
            };
            let start = if self.is_1_8() { "" } else { "raft apply failed: " };
            return Err(Refused::new(500, format!("{start}{problem}")));
        }
        if condition.acquire.is_some() && self.is_delayed(key, now) {
            return Ok(false);
        }
        let index = self.commit();
        let old = self.keys.get(key);
        if let Some(expected) = condition.cas
            && expected != old.map_or(0, |record| record.modify_index)
        {
            return Ok(false);
        }
        let holder = old.and_then(|record| record.session.clone());
        let mut lock_index = 0;
        let mut session = holder.clone();
        if let Some(wanted) = &condition.acquire {
            if holder.as_ref().is_some_and(|holder| holder != wanted) {
                return Ok(false);
            }
            lock_index = old.map_or(0, |record| record.lock_index) + u64::from(holder.is_none());
            session = Some(wanted.clone());
        } else if let Some(wanted) = &condition.release {
            if holder.as_ref() != Some(wanted) {
                return Ok(false);
            }
            lock_index = old.map_or(0, |record| record.lock_index);
            session = None;
        }
        let record = KeyRecord {
            value,
            flags,
            session,
            lock_index,
            create_index: old.map_or(index, |record| record.create_index),
            modify_index: index,
        };
        let same = old.is_some_and(|old| {
            old.value == record.value
                && old.flags == record.flags
                && old.session == record.session
                && old.lock_index == record.lock_index
        });
        if !same {
            self.keys.insert(key.to_owned(), record);
            self.tables.kvs = index;
        }
        Ok(true)
    }

    /// Deletes a key; `false` when its condition does not hold. An absent key counts as deleted.
    pub(in crate::testing) fn kv_delete(&mut self, key: &str, cas: Option<u64>) -> bool {
        let index = self.commit();
        let Some(record) = self.keys.get(key) else {
            return true;
        };
        if cas.is_some_and(|expected| expected != record.modify_index) {
            return false;
        }
        self.bury(key, index);
        true
    }

    pub(in crate::testing) fn kv_delete_tree(&mut self, prefix: &str) {
        let index = self.commit();
        let doomed: Vec<String> = self.under(prefix).map(|(key, _)| key.clone()).collect();
        if doomed.is_empty() {
            return;
        }
        for key in &doomed {
            self.keys.remove(key);
        }
        if !prefix.is_empty() {
            self.tombstones.insert(prefix.to_owned(), index);
            self.tables.tombstones = index;
        }
        self.tables.kvs = index;
    }

    pub(super) fn bury(&mut self, key: &str, index: u64) {
        self.keys.remove(key);
        self.tombstones.insert(key.to_owned(), index);
        self.tables.tombstones = index;
        self.tables.kvs = index;
    }

    /// Returns `true` if the key's lock-delay runs.
    pub(super) fn is_delayed(&self, key: &str, now: Instant) -> bool {
        self.lock_delays.get(key).is_some_and(|until| *until > now)
    }

    /// Takes a session off its keys, or deletes them, and starts their lock-delay.
    pub(super) fn unlock(
        &mut self,
        session: &str,
        delete: bool,
        delay: Duration,
        index: u64,
        now: Instant,
    ) {
        let held: Vec<String> = self
            .keys
            .iter()
            .filter(|(_, record)| record.session.as_deref() == Some(session))
            .map(|(key, _)| key.clone())
            .collect();
        // Those that are over need not be kept.
        self.lock_delays.retain(|_, until| *until > now);
        for key in held {
            if !delay.is_zero() {
                self.lock_delays.insert(key.clone(), now + delay.min(Duration::from_mins(1)));
            }
            if delete {
                self.bury(&key, index);
            } else if let Some(record) = self.keys.get_mut(&key) {
                record.session = None;
                record.modify_index = index;
                self.tables.kvs = index;
            }
        }
    }

    /// Forgets deleted keys, as servers do after 15 minutes: indexes of lists can become lower.
    pub(in crate::testing) fn reap_tombstones(&mut self) {
        self.tombstones.clear();
    }
}

fn pair(key: &str, record: &KeyRecord) -> KvPair {
    KvPair {
        key: key.to_owned(),
        value: record.value.clone(),
        flags: record.flags,
        session: record.session.clone().and_then(|id| id.try_into().ok()),
        lock_index: record.lock_index,
        create_index: record.create_index,
        modify_index: record.modify_index,
    }
}
