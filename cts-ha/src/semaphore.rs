//! Semaphores, compatible with those of Consul's own client.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use consul_watch::{
    Answer, Clock,
    client::PutCondition,
    types::{KvPair, SessionId},
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    Consul, Error, Lease, LockOptions, Loss, Result,
    cleanup::CleanUp,
    lease::EndsOnDrop,
    lock_key::{bounded, next_index},
    session::Opened,
};

/// Flags that mark keys as those of a semaphore.
///
/// Source: Consul Go client `api/semaphore.go` (`SemaphoreFlagValue`).
pub const SEMAPHORE_FLAGS: u64 = 0xe0f6_9a2b_aa41_4de0;

/// Number of attempts of a write that others overtake.
const RACES: usize = 100;

/// Limited number of slots, each held by one session, compatible with the semaphores of Consul's
/// own client.
///
/// All handles must ask for the same limit. The session is always the semaphore's own;
/// `LockOptions::session` is ignored, and the other options mean what they mean for a lock.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use cts_ha::{Consul, LockOptions, Semaphore};
///
/// let consul = Consul::new(consul); // a consul_watch::Client
/// let slots = Semaphore::new(&consul, "app/slots", 2, LockOptions::default())?;
/// let lease = slots.acquire().await?.ok_or("not tried for long")?;
/// assert!(lease.check().is_ok());
/// slots.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Consul Go client `api/semaphore.go`.
/// Deviation: after a loss the session is ended, and the handle can be used again.
pub struct Semaphore {
    slots: Slots,
    options: LockOptions,
    held: Mutex<Option<Held>>,
}

struct Held {
    lease: Lease,
    done: CancellationToken,
    keeper: JoinHandle<Result<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

/// Value of the key that lists the holders.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Register {
    limit: usize,
    #[serde(default)]
    holders: BTreeMap<String, bool>,
}

/// Register of the holders in one read.
struct ObservedRegister {
    register: Register,
    /// Index of the register's key; 0 if there is none yet.
    index: u64,
}

#[derive(Clone)]
struct Slots {
    consul: Consul,
    prefix: String,
    limit: usize,
    value: Bytes,
}

impl Semaphore {
    /// Creates a semaphore of `limit` slots below `prefix`; sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a limit of 0 or an empty prefix.
    pub fn new(
        consul: &Consul,
        prefix: impl Into<String>,
        limit: usize,
        options: LockOptions,
    ) -> Result<Self> {
        let prefix = prefix.into().trim_end_matches('/').to_owned();
        if limit == 0 || prefix.is_empty() {
            return Err(Error::Setting {
                setting: "semaphore",
                problem: "needs a prefix and a limit of at least 1".to_owned(),
            });
        }
        let slots = Slots { consul: consul.clone(), prefix, limit, value: options.value.clone() };
        Ok(Self { slots, options, held: Mutex::new(None) })
    }

    /// Waits until a slot is held, and returns its lease; `None` only with `try_once`, when its
    /// time has passed.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyHeld`] if this handle holds one, [`Error::LimitConflict`],
    /// [`Error::Conflict`] for keys that are no semaphore's; otherwise the error of Consul.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future releases in the background what it has acquired, also a
    /// slot that Consul grants at this moment. If that does not reach Consul, the session's TTL
    /// frees the slot.
    pub async fn acquire(&self) -> Result<Option<Lease>> {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|held| held.lease.check().is_ok()) {
            return Err(Error::AlreadyHeld);
        }
        *held = None;
        let session =
            Opened::create(&self.slots.consul, &self.options.session_options, &self.options.clock)
                .await?;
        let session = Arc::new(session);
        let leaving = {
            let (slots, session) = (self.slots.clone(), Arc::clone(&session));
            async move { slots.give_up_quietly(&session).await }
        };
        let attempt = CleanUp::new(leaving);
        let outcome = tokio::select! {
            outcome = self.contend(session.id()) => outcome,
            _loss = session.renew() => Err(Error::SessionExpired),
        };
        match outcome {
            Ok(true) => {
                attempt.disarm();
                let taken = self.hold(session);
                let lease = taken.lease.clone();
                *held = Some(taken);
                Ok(Some(lease))
            }
            other => {
                self.slots.give_up_quietly(&session).await;
                attempt.disarm();
                other.map(|_none| None)
            }
        }
    }

    /// Releases the slot.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`], or the error of Consul if the release failed: then the slot is free when
    /// the session's TTL has passed.
    pub async fn release(&self) -> Result<()> {
        let mut held = self.held.lock().await.take().ok_or(Error::NotHeld)?;
        let was_held = held.lease.check().is_ok();
        held.lease.end(Loss::Resigned);
        held.done.cancel();
        let released = (&mut held.keeper).await.map_err(|source| Error::Other {
            operation: "release semaphore",
            retryable: false,
            source: source.into(),
        })?;
        if was_held { released } else { Err(Error::NotHeld) }
    }

    async fn contend(&self, session: &SessionId) -> Result<bool> {
        let slots = &self.slots;
        // The contender's key first: a holder in the register without one counts as dead.
        slots.enter(session).await?;
        let clock = &self.options.clock;
        let start = clock.monotonic();
        let mut index = None;
        let mut first = true;
        loop {
            let elapsed = clock.monotonic().saturating_sub(start);
            let left = self.options.wait.saturating_sub(elapsed);
            if self.options.try_once && !first && left.is_zero() {
                return Ok(false);
            }
            first = false;
            let wait = if self.options.try_once { left } else { self.options.wait };
            let answer = slots.read(index, wait).await?;
            let mut observed = slots.judge(&answer.value)?;
            let id = session.as_str();
            // An earlier write whose answer was lost.
            if observed.register.holders.contains_key(id) {
                return Ok(true);
            }
            if observed.register.holders.len() >= slots.limit {
                index = next_index(index, answer.meta.index);
                continue;
            }
            // Without an index: after a lost race the present register is wanted.
            index = None;
            observed.register.holders.insert(id.to_owned(), true);
            if slots.write(&observed).await? {
                return Ok(true);
            }
        }
    }

    fn hold(&self, session: Arc<Opened>) -> Held {
        let (slots, options) = (self.slots.clone(), self.options.clone());
        let (lease, done) = (session.lease().clone(), CancellationToken::new());
        let asked = done.clone();
        let kept = EndsOnDrop(lease.clone());
        let keeper = tokio::spawn(async move {
            let _kept = kept;
            let loss = tokio::select! {
                loss = slots.monitor(session.id(), &options, &options.clock) => {
                    session.lease().end(loss)
                }
                loss = session.renew() => loss,
                () = asked.cancelled() => return slots.give_up(&session).await,
            };
            if loss == Loss::Resigned {
                // `release` ends the lease before it cancels the token.
                return slots.give_up(&session).await;
            }
            tracing::warn!(prefix = slots.prefix, %loss, "a slot of the semaphore was lost");
            // The lock-delay protects keys, not slots: a slot is free at the moment at which its
            // session ends, and this holder's last step may still be running.
            session.leave_to_ttl();
            Ok(())
        });
        Held { lease, done, keeper }
    }
}

impl Slots {
    fn register_key(&self) -> String {
        format!("{}/.lock", self.prefix)
    }

    fn contender_key(&self, session: &SessionId) -> String {
        format!("{}/{session}", self.prefix)
    }

    /// Writes the contender's key, which shows that the session is alive: it loses its session when
    /// that ends.
    async fn enter(&self, session: &SessionId) -> Result<()> {
        let condition = PutCondition::Acquire(session.clone());
        let key = self.contender_key(session);
        let put = self.consul.put(&key, self.value.clone(), SEMAPHORE_FLAGS, condition);
        if put.await? { Ok(()) } else { Err(Error::SessionExpired) }
    }

    async fn read(&self, index: Option<u64>, wait: Duration) -> Result<Answer<Vec<KvPair>>> {
        let limit = wait / 16 * 17 + Duration::from_secs(5);
        let prefix = format!("{}/", self.prefix);
        bounded("read semaphore", limit, self.consul.list(&prefix, index, wait)).await
    }

    /// Returns the holders, without those whose session has ended.
    fn judge(&self, pairs: &[KvPair]) -> Result<ObservedRegister> {
        let key = self.register_key();
        // Dead holders stay in the register until somebody writes it; only live contenders count.
        let alive: BTreeSet<&str> = pairs
            .iter()
            .filter(|pair| pair.flags == SEMAPHORE_FLAGS && pair.key != key)
            .filter_map(|pair| pair.session.as_ref().map(SessionId::as_str))
            .collect();
        let Some(pair) = pairs.iter().find(|pair| pair.key == key) else {
            let register = Register { limit: self.limit, holders: BTreeMap::new() };
            return Ok(ObservedRegister { register, index: 0 });
        };
        if pair.flags != SEMAPHORE_FLAGS {
            return Err(Error::Conflict { key });
        }
        let mut register: Register =
            serde_json::from_slice(&pair.value).map_err(|error| Error::Data {
                key,
                problem: format!("is no semaphore's: {error}; delete it if nothing uses it"),
            })?;
        if register.limit != self.limit {
            return Err(Error::LimitConflict {
                prefix: self.prefix.clone(),
                found: register.limit,
                asked: self.limit,
            });
        }
        register.holders.retain(|holder, _| alive.contains(holder.as_str()));
        Ok(ObservedRegister { register, index: pair.modify_index })
    }

    /// Writes the register; returns `false` if another writer was faster.
    async fn write(&self, observed: &ObservedRegister) -> Result<bool> {
        let value = serde_json::to_vec(&observed.register).unwrap_or_default();
        // Index 0 creates only, so that two first contenders cannot overwrite each other.
        let condition = PutCondition::Index(observed.index);
        self.consul.put(&self.register_key(), value.into(), SEMAPHORE_FLAGS, condition).await
    }

    /// Removes a session from the register, and its contender's key.
    async fn leave(&self, session: &SessionId) -> Result<()> {
        let leaving = async {
            for _attempt in 0..RACES {
                let answer = self.read(None, Duration::ZERO).await?;
                let mut observed = self.judge(&answer.value)?;
                let held = observed.register.holders.remove(session.as_str()).is_some();
                if !held || self.write(&observed).await? {
                    break;
                }
            }
            let key = self.contender_key(session);
            let pair = self.consul.get(&key, None, Duration::ZERO).await?.value;
            if let Some(pair) = pair {
                // Whoever was faster has deleted it.
                self.consul.delete_at(&key, pair.modify_index).await?;
            }
            Ok(())
        };
        bounded("release semaphore", crate::session::SHUTDOWN_LIMIT, leaving).await
    }

    /// Removes a session, and ends it.
    async fn give_up(&self, session: &Opened) -> Result<()> {
        session.lease().end(Loss::Resigned);
        let left = self.leave(session.id()).await;
        session.destroy().await;
        left
    }

    async fn give_up_quietly(&self, session: &Opened) {
        if let Err(error) = self.give_up(session).await {
            tracing::debug!(
                prefix = self.prefix,
                error = &error as &dyn std::error::Error,
                "others will find that this contender is gone"
            );
        }
    }

    /// Returns when the session no longer holds a slot, or when that cannot be read.
    async fn monitor(
        &self,
        session: &SessionId,
        options: &LockOptions,
        clock: &Arc<dyn Clock>,
    ) -> Loss {
        let mut index = None;
        let mut left = options.monitor_retries;
        loop {
            let held = self.read(index, options.wait).await.and_then(|answer| {
                let observed = self.judge(&answer.value)?;
                let held = observed.register.holders.contains_key(session.as_str());
                Ok(held.then_some(answer.meta.index))
            });
            match held {
                Ok(Some(answered)) => {
                    left = options.monitor_retries;
                    index = next_index(index, answered);
                }
                Ok(None) => return Loss::Taken,
                Err(error) if left > 0 && error.is_retryable() => {
                    left -= 1;
                    clock.sleep(options.monitor_retry_time).await;
                    index = None;
                }
                Err(error) => {
                    tracing::warn!(
                        prefix = self.prefix,
                        error = &error as &dyn std::error::Error,
                        "the semaphore cannot be watched any more"
                    );
                    return Loss::Unwatched;
                }
            }
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("prefix", &self.slots.prefix)
            .field("limit", &self.slots.limit)
            .finish_non_exhaustive()
    }
}
