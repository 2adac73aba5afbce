//! Contending for a key, and watching it once it is held: what locks and
//! elections share.

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

/// Marks a key as a lock.
///
/// Source: Consul Go client `api/lock.go` (`LockFlagValue`).
pub const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// What a read or a write that does not block may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A key, and what is written to it by whoever holds it.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) key: String,
    pub(crate) flags: u64,
    pub(crate) value: Bytes,
}

/// How to contend for a seat.
pub(crate) struct Contest<'a> {
    pub(crate) consul: &'a Consul,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) seat: &'a Seat,
    pub(crate) session: &'a SessionId,
    /// The longest block of a read.
    pub(crate) wait: Duration,
    /// Gives up after this time.
    pub(crate) limit: Option<Duration>,
    /// How long to wait after the lock-delay was met.
    pub(crate) delayed: Duration,
    /// Sees every answer.
    pub(crate) observe: &'a (dyn Fn(Option<&KvPair>) + Send + Sync),
}

/// The seat is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Index of the acquisition in Consul: larger than that of any earlier one.
    pub(crate) term: u64,
}

/// What a read says about a seat.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Free,
    Ours(Grant),
    Taken,
    Foreign,
}

/// What became of an attempt to acquire.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Acquired(Grant),
    Lost,
    Delayed,
    NoSession,
}

impl Contest<'_> {
    /// Contends until the seat is ours; `None` when the limit has passed.
    ///
    /// Source: Consul Go client `api/lock.go` (`Lock`).
    /// Deviation: one transaction acquires and tells why it could not, so no
    /// second read is needed.
    pub(crate) async fn run(&self) -> Result<Option<Grant>> {
        let start = self.clock.monotonic();
        let mut index = None;
        let mut first = true;
        // Acquiring failed although the key looked free.
        let mut beaten = false;
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(start);
            let wait = match self.limit {
                Some(limit) if !first && elapsed >= limit => return Ok(None),
                Some(limit) => self.wait.min(limit.saturating_sub(elapsed)),
                None => self.wait,
            };
            first = false;
            let answer = read(self.consul, &self.seat.key, index, wait).await?;
            (self.observe)(answer.value.as_ref());
            match judge(answer.value.as_ref(), self.seat.flags, self.session) {
                Seen::Foreign => return Err(Error::Conflict { key: self.seat.key.clone() }),
                Seen::Ours(grant) => return Ok(Some(grant)),
                Seen::Taken => {
                    beaten = false;
                    index = next_index(index, answer.meta.index);
                }
                Seen::Free => {
                    index = None;
                    match self.acquire().await? {
                        Attempt::Acquired(grant) => return Ok(Some(grant)),
                        Attempt::Lost if !beaten => beaten = true,
                        Attempt::Lost | Attempt::Delayed => {
                            let left = self.limit.map(|limit| limit.saturating_sub(elapsed));
                            let delay = left.map_or(self.delayed, |left| left.min(self.delayed));
                            self.clock.sleep(delay.max(Duration::from_millis(1))).await;
                        }
                        Attempt::NoSession => return Err(Error::SessionExpired),
                    }
                }
            }
        }
    }

    async fn acquire(&self) -> Result<Attempt> {
        let Seat { key, flags, value } = self.seat;
        let op = KvOp::lock(key, value.clone(), self.session.clone()).with_flags(*flags);
        let outcome = bounded("acquire lock", ANSWER, self.consul.transact(vec![op])).await;
        match outcome {
            Ok(TxnOutcome::Committed(results)) => {
                let outcome = TxnOutcome::Committed(results);
                let pair = outcome.pairs().next();
                let term = pair.map(|pair| pair.modify_index).ok_or_else(|| Error::Data {
                    key: key.clone(),
                    problem: "Consul acquired the lock and gave no index".to_owned(),
                })?;
                Ok(Attempt::Acquired(Grant { term }))
            }
            Ok(TxnOutcome::RolledBack(failures)) => refused(key, &failures),
            Err(Error::Consul { source, .. })
                if matches!(
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

    /// For proxies that let no transaction through.
    async fn acquire_plainly(&self) -> Result<Attempt> {
        let Seat { key, flags, value } = self.seat;
        let condition = PutCondition::Acquire(self.session.clone());
        let put = self.consul.put(key, value.clone(), *flags, condition);
        let acquired = match bounded("acquire lock", ANSWER, put).await {
            Err(Error::Consul { source, .. }) if source.to_string().contains("invalid session") => {
                return Ok(Attempt::NoSession);
            }
            acquired => acquired?,
        };
        let answer = read(self.consul, key, None, Duration::ZERO).await?;
        (self.observe)(answer.value.as_ref());
        Ok(match judge(answer.value.as_ref(), *flags, self.session) {
            Seen::Ours(grant) => Attempt::Acquired(grant),
            Seen::Free if !acquired => Attempt::Delayed,
            Seen::Free | Seen::Taken | Seen::Foreign => Attempt::Lost,
        })
    }
}

fn refused(key: &str, failures: &[TxnFailure]) -> Result<Attempt> {
    let says = |text: &str| failures.iter().any(|failure| failure.what.contains(text));
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

fn judge(pair: Option<&KvPair>, flags: u64, session: &SessionId) -> Seen {
    let Some(pair) = pair else { return Seen::Free };
    if pair.session.as_ref() == Some(session) {
        return Seen::Ours(Grant { term: pair.modify_index });
    }
    match &pair.session {
        _ if pair.flags != flags => Seen::Foreign,
        Some(_) => Seen::Taken,
        None => Seen::Free,
    }
}

/// The index to block on; one that went backwards starts again.
pub(crate) fn next_index(before: Option<u64>, answered: Option<u64>) -> Option<u64> {
    match (before, answered) {
        (Some(before), Some(now)) if now < before => None,
        (_, now) => now,
    }
}

/// Reads a key, and does not wait for an answer that no longer comes.
pub(crate) async fn read(
    consul: &Consul,
    key: &str,
    index: Option<u64>,
    wait: Duration,
) -> Result<Answer<Option<KvPair>>> {
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

/// Watches a key that is held, until it is not.
pub(crate) struct Monitor<'a> {
    pub(crate) consul: &'a Consul,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) key: &'a str,
    pub(crate) session: &'a SessionId,
    /// The longest block of a read.
    pub(crate) wait: Duration,
    /// How many reads in a row may fail.
    pub(crate) retries: u32,
    /// How long to wait between them.
    pub(crate) retry_time: Duration,
}

impl Monitor<'_> {
    /// Returns when the session holds the key no more, or nobody can tell.
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
            index = None;
        }
    }
}

/// Gives a held key up; `false` when it was not held by the session.
pub(crate) async fn release(consul: &Consul, seat: &Seat, session: &SessionId) -> Result<bool> {
    let condition = PutCondition::Release(session.clone());
    let put = consul.put(&seat.key, seat.value.clone(), seat.flags, condition);
    bounded("release lock", crate::session::FAREWELL, put).await
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
        assert_eq!(judge(None), Seen::Free);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, None))), Seen::Free);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, Some("you")))), Seen::Taken);
        assert_eq!(judge(Some(pair(0, Some("you")))), Seen::Foreign);
        assert_eq!(judge(Some(pair(LOCK_FLAGS, Some("me")))), Seen::Ours(Grant { term: 7 }));
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
