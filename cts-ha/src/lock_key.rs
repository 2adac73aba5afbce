//! Acquires a key with a session, and watches it while it is held: the common base of locks and
//! elections.
//!
//! | key | session of the key | outcome of a read |
//! | --- | --- | --- |
//! | missing | | free |
//! | other flags | not ours | foreign: an error |
//! | lock flags | none | free: try to acquire |
//! | lock flags | another's | taken: block until it changes |
//! | any flags | ours | acquired |

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use consul_watch::{
    Answer, Clock,
    client::PutCondition,
    types::{KvOp, KvPair, SessionId, TxnFailure, TxnOutcome},
};
use http::StatusCode;
use tokio::time::timeout;

use crate::{Consul, Error, Loss, Result, consul::reasons};

/// Flags that mark a key as a lock.
///
/// Source: Consul Go client `api/lock.go` (`LockFlagValue`).
pub const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// Time limit of a read or write that does not block.
const ANSWER: Duration = Duration::from_secs(5);

/// Key of a lock, and what its holder writes to it.
#[derive(Debug, Clone)]
pub(crate) struct LockKey {
    pub(crate) key: String,
    pub(crate) flags: u64,
    pub(crate) value: Bytes,
}

/// Acquisition of a key.
pub(crate) struct LockAcquirer<'a> {
    pub(crate) consul: &'a Consul,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) lock: &'a LockKey,
    pub(crate) session: &'a SessionId,
    /// Longest block of one read.
    pub(crate) wait: Duration,
    /// Time after which it gives up; `None` for never.
    pub(crate) limit: Option<Duration>,
    /// Pause after an attempt that met the lock-delay.
    pub(crate) delayed: Duration,
    /// Callback for every read of the key.
    pub(crate) observe: &'a (dyn Fn(Option<&KvPair>) + Send + Sync),
}

/// Proof that the key was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Index of the acquisition in Consul, larger than that of any earlier one.
    pub(crate) term: u64,
}

/// State of a key in one read.
#[derive(Debug, PartialEq, Eq)]
enum KeyState {
    Free,
    Ours(Grant),
    Taken,
    Foreign,
}

/// Outcome of an attempt to acquire.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Acquired(Grant),
    Lost,
    Delayed,
    NoSession,
}

impl LockAcquirer<'_> {
    /// Waits until the key is acquired; `None` when the limit has passed.
    ///
    /// Source: Consul Go client `api/lock.go` (`Lock`).
    /// Deviation: one transaction both acquires and tells why it could not, so no second read is
    /// needed.
    pub(crate) async fn run(&self) -> Result<Option<Grant>> {
        let start = self.clock.monotonic();
        let mut index = None;
        let mut first = true;
        // `true` after an attempt failed although the key looked free.
        let mut beaten = false;
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(start);
            let wait = match self.limit {
                // `first`: a limit of zero still tries once.
                Some(limit) if !first && elapsed >= limit => return Ok(None),
                Some(limit) => self.wait.min(limit.saturating_sub(elapsed)),
                None => self.wait,
            };
            first = false;
            let answer = read(self.consul, &self.lock.key, index, wait).await?;
            // Also while the key is taken: candidates learn from it who leads.
            (self.observe)(answer.value.as_ref());
            match judge(answer.value.as_ref(), self.lock.flags, self.session) {
                KeyState::Foreign => return Err(Error::Conflict { key: self.lock.key.clone() }),
                KeyState::Ours(grant) => return Ok(Some(grant)),
                // Blocking on this index returns as soon as the holder releases.
                KeyState::Taken => {
                    beaten = false;
                    index = next_index(index, answer.meta.index);
                }
                KeyState::Free => {
                    // Without an index: after a lost race the present state is wanted, not the next
                    // change.
                    index = None;
                    match self.acquire().await? {
                        Attempt::Acquired(grant) => return Ok(Some(grant)),
                        // Losing one race is normal: the next read shows the winner. If the key is
                        // free again and this is lost again, it changes hands quickly; pause, so as
                        // not to spin.
                        Attempt::Lost if !beaten => beaten = true,
                        Attempt::Lost | Attempt::Delayed => {
                            let left = self.limit.map(|limit| limit.saturating_sub(elapsed));
                            let delay = left.map_or(self.delayed, |left| left.min(self.delayed));
                            // At least 1 ms, or a limit that is used up would spin until it is
                            // noticed.
                            self.clock.sleep(delay.max(Duration::from_millis(1))).await;
                        }
                        Attempt::NoSession => return Err(Error::SessionExpired),
                    }
                }
            }
        }
    }

    async fn acquire(&self) -> Result<Attempt> {
        let LockKey { key, flags, value } = self.lock;
        let op = KvOp::lock(key, value.clone(), self.session.clone()).with_flags(*flags);
        let outcome = bounded("acquire lock", ANSWER, self.consul.transact(vec![op])).await;
        match outcome {
            Ok(TxnOutcome::Committed(results)) => {
                let outcome = TxnOutcome::Committed(results);
                let pair = outcome.pairs().next();
                // The transaction's own index: a later read could already show another holder's.
                let term = pair.map(|pair| pair.modify_index).ok_or_else(|| Error::Data {
                    key: key.clone(),
                    problem: "Consul acquired the lock and gave no index".to_owned(),
                })?;
                Ok(Attempt::Acquired(Grant { term }))
            }
            Ok(TxnOutcome::RolledBack(failures)) => refused(key, &failures),
            Err(Error::Consul { source, .. })
                if matches!(
                    // Some proxies allow only the plain KV endpoints.
                    source.status(),
                    Some(
                        StatusCode::NOT_FOUND
                            | StatusCode::METHOD_NOT_ALLOWED
                            | StatusCode::NOT_IMPLEMENTED
                    )
                ) =>
            {
                self.acquire_plainly().await
            }
            Err(error) => Err(error),
        }
    }

    /// Acquires without a transaction, for proxies that allow none.
    async fn acquire_plainly(&self) -> Result<Attempt> {
        let LockKey { key, flags, value } = self.lock;
        let condition = PutCondition::Acquire(self.session.clone());
        let put = self.consul.put(key, value.clone(), *flags, condition);
        let acquired = match bounded("acquire lock", ANSWER, put).await {
            // The plain endpoint tells a dead session by its text alone.
            Err(Error::Consul { source, .. }) if source.to_string().contains("invalid session") => {
                return Ok(Attempt::NoSession);
            }
            acquired => acquired?,
        };
        // `false` does not say why, so the key is read.
        let answer = read(self.consul, key, None, Duration::ZERO).await?;
        (self.observe)(answer.value.as_ref());
        Ok(match judge(answer.value.as_ref(), *flags, self.session) {
            KeyState::Ours(grant) => Attempt::Acquired(grant),
            KeyState::Free if !acquired => Attempt::Delayed,
            KeyState::Free | KeyState::Taken | KeyState::Foreign => Attempt::Lost,
        })
    }
}

fn refused(key: &str, failures: &[TxnFailure]) -> Result<Attempt> {
    let says = |text: &str| failures.iter().any(|failure| failure.what.contains(text));
    // Consul has no code for these, only texts; the suites run on real servers of 1.8.7 and 1.19.2.
    if says("lock is already held") {
        Ok(Attempt::Lost)
    } else if says("due to lock delay") {
        Ok(Attempt::Delayed)
    } else if says("invalid session") || says("failed session lookup") {
        Ok(Attempt::NoSession)
    } else {
        Err(Error::Data {
            key: key.to_owned(),
            problem: format!("Consul does not let the lock be taken: {}", reasons(failures)),
        })
    }
}

fn judge(pair: Option<&KvPair>, flags: u64, session: &SessionId) -> KeyState {
    let Some(pair) = pair else { return KeyState::Free };
    if pair.session.as_ref() == Some(session) {
        return KeyState::Ours(Grant { term: pair.modify_index });
    }
    match &pair.session {
        _ if pair.flags != flags => KeyState::Foreign,
        Some(_) => KeyState::Taken,
        None => KeyState::Free,
    }
}

/// Returns the index to block on; none if it went backwards, as after a restored snapshot.
pub(crate) fn next_index(before: Option<u64>, answered: Option<u64>) -> Option<u64> {
    match (before, answered) {
        (Some(before), Some(now)) if now < before => None,
        (_, now) => now,
    }
}

/// Reads a key within a time limit: a little more than Consul takes for a blocking query.
pub(crate) async fn read(
    consul: &Consul,
    key: &str,
    index: Option<u64>,
    wait: Duration,
) -> Result<Answer<Option<KvPair>>> {
    // Consul adds up to a sixteenth to `wait` to spread its clients.
    let limit = if index.is_some() { wait / 16 * 17 + Duration::from_secs(2) } else { ANSWER };
    bounded("read lock", limit, consul.get(key, index, wait)).await
}

pub(crate) async fn bounded<T>(
    operation: &'static str,
    limit: Duration,
    asking: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(limit, asking).await.map_err(|_late| Error::Other {
        operation,
        retryable: true,
        source: format!("no answer from Consul within {limit:?}").into(),
    })?
}

/// Watch on a key that is held, until it no longer is.
pub(crate) struct LockMonitor<'a> {
    pub(crate) consul: &'a Consul,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) key: &'a str,
    pub(crate) session: &'a SessionId,
    /// Longest block of one read.
    pub(crate) wait: Duration,
    /// Number of consecutive reads that may fail.
    pub(crate) retries: u32,
    /// Pause between these.
    pub(crate) retry_time: Duration,
}

impl LockMonitor<'_> {
    /// Returns when the session no longer holds the key, or when that cannot be read.
    ///
    /// Source: Consul Go client `api/lock.go` (`monitorLock`).
    pub(crate) async fn run(&self) -> Loss {
        let mut index = None;
        let mut left = self.retries;
        loop {
            let answer = read(self.consul, self.key, index, self.wait).await;
            let error = match answer {
                Ok(answer) => {
                    let session = answer.value.as_ref().and_then(|pair| pair.session.as_ref());
                    if session != Some(self.session) {
                        return Loss::Taken;
                    }
                    // Only consecutive failures count.
                    left = self.retries;
                    index = next_index(index, answer.meta.index);
                    continue;
                }
                Err(error) => error,
            };
            if left == 0 || !error.is_retryable() {
                tracing::warn!(
                    kv.key = self.key,
                    error = &error as &dyn std::error::Error,
                    "the lock cannot be watched any more"
                );
                return Loss::Unwatched;
            }
            left -= 1;
            tracing::debug!(
                kv.key = self.key,
                error = &error as &dyn std::error::Error,
                left,
                "cannot watch the lock, trying again"
            );
            self.clock.sleep(self.retry_time).await;
            // The index may be that of a server that is gone; a fresh read costs one round trip.
            index = None;
        }
    }
}

/// Releases a held key; returns `false` if the session did not hold it.
pub(crate) async fn release(consul: &Consul, lock: &LockKey, session: &SessionId) -> Result<bool> {
    let condition = PutCondition::Release(session.clone());
    let put = consul.put(&lock.key, lock.value.clone(), lock.flags, condition);
    bounded("release lock", crate::session::SHUTDOWN_LIMIT, put).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        id.parse().unwrap()
    }

    fn pair(flags: u64, holder: Option<&str>) -> KvPair {
        let mut pair = KvPair::default();
        pair.flags = flags;
        pair.session = holder.map(session);
        pair.modify_index = 7;
        pair
    }

    #[test]
    fn a_read_says_who_holds_the_key() {
        let judge = |pair: Option<KvPair>| judge(pair.as_ref(), LOCK_FLAGS, &session("me"));
        assert_eq!(judge(None), KeyState::Free);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, None))), KeyState::Free);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, Some("you")))), KeyState::Taken);
        assert_eq!(judge(Some(pair(0, Some("you")))), KeyState::Foreign);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, Some("me")))), KeyState::Ours(Grant { term: 7 }));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let failure = |what: &str| -> Vec<TxnFailure> {
            serde_json::from_value(serde_json::json!([{ "OpIndex": 0, "What": what }])).unwrap()
        };
        let judge = |what| refused("k", &failure(what)).unwrap();
        assert_eq!(judge("failed to lock key \"k\", lock is already held"), Attempt::Lost);
        assert_eq!(judge("failed to lock key \"k\" due to lock delay"), Attempt::Delayed);
        assert_eq!(judge("invalid session \"x\""), Attempt::NoSession);
        assert!(refused("k", &failure("something else")).is_err());
    }

    #[test]
    fn an_index_that_goes_backwards_starts_again() {
        assert_eq!(next_index(Some(9), Some(3)), None);
        assert_eq!(next_index(Some(9), Some(12)), Some(12));
        assert_eq!(next_index(None, Some(3)), Some(3));
    }
}
