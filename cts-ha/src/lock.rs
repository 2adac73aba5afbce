//! Locks on keys, compatible with those of Consul's own client.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use consul_watch::{Clock, SystemClock, types::SessionId};
use tokio::{sync::Mutex, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    Consul, Error, Lease, Loss, Result, SessionOptions,
    cleanup::CleanUp,
    lease::EndsOnDrop,
    lock_key::{Grant, LOCK_FLAGS, LockAcquirer, LockKey, LockMonitor, read, release},
    session::Opened,
};

/// Settings of a [`Lock`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockOptions {
    /// Value that the holder writes to the key; empty by default.
    pub value: Bytes,
    /// Session of the caller, who renews it; `None`, the default, creates one.
    pub session: Option<SessionId>,
    /// Settings of a session that is created.
    pub session_options: SessionOptions,
    /// Longest block of one read; default 15 s.
    pub wait: Duration,
    /// `true` to give up after `wait`. Default `false`.
    pub try_once: bool,
    /// Pause after an attempt that met the lock-delay; default 5 s.
    pub delayed: Duration,
    /// Number of consecutive reads that may fail while the lock is held; default 0.
    pub monitor_retries: u32,
    /// Pause between such reads; default 2 s.
    pub monitor_retry_time: Duration,
    /// Clock that measures leases; by default the machine's.
    pub clock: Arc<dyn Clock>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            value: Bytes::new(),
            session: None,
            session_options: SessionOptions::default(),
            wait: Duration::from_secs(15),
            try_once: false,
            delayed: Duration::from_secs(5),
            monitor_retries: 0,
            monitor_retry_time: Duration::from_secs(2),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Lock on a key that one session holds at a time, compatible with those of Consul's own client.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use cts_ha::{Consul, Lock, LockOptions};
///
/// let consul = Consul::new(consul); // a consul_watch::Client
/// let lock = Lock::new(&consul, "app/lock", LockOptions::default());
/// let lease = lock.lock().await?.ok_or("not tried for long")?;
/// assert!(lease.check().is_ok()); // ask before each step; or select on lease.ended()
/// lock.unlock().await?;
/// assert!(lease.check().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Only [`Lock::destroy`] deletes the key. A lock that is dropped while held is released in the
/// background.
///
/// Source: Consul Go client `api/lock.go`.
/// Deviation: after a loss the session is ended, and the handle can be used again.
pub struct Lock {
    consul: Consul,
    entry: LockKey,
    options: LockOptions,
    held: Mutex<Option<Held>>,
}

/// Lock while its handle holds it.
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

impl Lock {
    /// Creates a lock on this key; sends nothing yet.
    pub fn new(consul: &Consul, key: impl Into<String>, options: LockOptions) -> Self {
        let entry = LockKey { key: key.into(), flags: LOCK_FLAGS, value: options.value.clone() };
        Self { consul: consul.clone(), entry, options, held: Mutex::new(None) }
    }

    /// Waits until the lock is held, and returns its lease; `None` only with `try_once`, when its
    /// time has passed.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyHeld`] if this handle holds it, [`Error::Conflict`] for a key that is no
    /// lock; otherwise the error of Consul.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future releases in the background what it has acquired, also a
    /// lock that Consul grants at this moment. If that does not reach Consul, the session's TTL
    /// frees the lock.
    pub async fn lock(&self) -> Result<Option<Lease>> {
        self.lock_within(self.options.try_once.then_some(self.options.wait)).await
    }

    /// Waits until the lock is held, for at most `limit`; `None` when that has passed.
    ///
    /// The limit counts from the creation of the session; with zero there is one attempt.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`Lock::lock`].
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Lease>> {
        self.lock_within(Some(limit)).await
    }

    async fn lock_within(&self, limit: Option<Duration>) -> Result<Option<Lease>> {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|held| held.lease.check().is_ok()) {
            return Err(Error::AlreadyHeld);
        }
        // A lost lock: dropping it cancels its task.
        *held = None;
        loop {
            match self.contend(limit).await {
                // The session was invalidated between its creation and the attempt; try with a new
                // one.
                Err(Error::SessionExpired) if self.options.session.is_none() => {}
                outcome => {
                    let taken = outcome?;
                    let lease = taken.as_ref().map(|held| held.lease.clone());
                    *held = taken;
                    return Ok(lease);
                }
            }
        }
    }

    /// Releases the lock. Its lease has ended when this returns, also with an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`], or the error of Consul if the release failed: then the lock is free when
    /// the session's TTL has passed.
    pub async fn unlock(&self) -> Result<()> {
        let mut held = self.held.lock().await.take().ok_or(Error::NotHeld)?;
        // Asked before it is ended here: afterwards the answer would always be no.
        let was_held = held.lease.check().is_ok();
        held.lease.end(Loss::Resigned);
        held.done.cancel();
        let released = (&mut held.keeper).await.map_err(|source| Error::Other {
            operation: "release lock",
            retryable: false,
            source: source.into(),
        })?;
        if was_held { released } else { Err(Error::NotHeld) }
    }

    /// Deletes the key of a lock that nobody holds; a missing key counts as deleted.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyHeld`] if this handle holds it, [`Error::InUse`] if another does,
    /// [`Error::Conflict`] for a key that is no lock.
    pub async fn destroy(&self) -> Result<()> {
        let held = self.held.lock().await;
        if held.as_ref().is_some_and(|held| held.lease.check().is_ok()) {
            return Err(Error::AlreadyHeld);
        }
        let Some(pair) = read(&self.consul, &self.entry.key, None, Duration::ZERO).await?.value
        else {
            return Ok(());
        };
        if pair.flags != self.entry.flags {
            return Err(Error::Conflict { key: self.entry.key.clone() });
        }
        // Compared with the index that was read: somebody may acquire it in between.
        let free = pair.session.is_none();
        if free && self.consul.delete_at(&self.entry.key, pair.modify_index).await? {
            return Ok(());
        }
        Err(Error::InUse)
    }

    async fn contend(&self, limit: Option<Duration>) -> Result<Option<Held>> {
        let session = match &self.options.session {
            Some(id) => Owner::Caller(id.clone(), Lease::unbounded(self.clock())),
            None => Owner::Lock(
                Opened::create(&self.consul, &self.options.session_options, &self.options.clock)
                    .await?,
            ),
        };
        let session = Arc::new(session);
        let leaving = {
            let (consul, lock, session) =
                (self.consul.clone(), self.entry.clone(), Arc::clone(&session));
            async move {
                if let Err(error) = session.give_up(&consul, &lock).await {
                    tracing::debug!(
                        kv.key = lock.key,
                        error = &error as &dyn std::error::Error,
                        "cannot release the lock, the session's end will"
                    );
                }
            }
        };
        // Consul may be about to grant the lock at the moment at which the future is dropped.
        let attempt = CleanUp::new(leaving);
        let acquirer = LockAcquirer {
            consul: &self.consul,
            clock: &self.options.clock,
            lock: &self.entry,
            session: session.id(),
            wait: self.options.wait,
            limit,
            delayed: self.options.delayed,
            observe: &|_pair| {},
        };
        let outcome = tokio::select! {
            outcome = acquirer.run() => outcome,
            _loss = session.keep() => Err(Error::SessionExpired),
        };
        match outcome {
            Ok(Some(grant)) => {
                attempt.disarm();
                Ok(Some(self.hold(session, grant)))
            }
            other => {
                // An attempt whose answer was lost may have acquired the lock.
                let given_up = session.give_up(&self.consul, &self.entry).await;
                attempt.disarm();
                if let Err(error) = given_up {
                    tracing::debug!(
                        kv.key = self.entry.key,
                        error = &error as &dyn std::error::Error,
                        "cannot release the lock, the session's end will"
                    );
                }
                other.map(|_none| None)
            }
        }
    }

    fn hold(&self, session: Arc<Owner>, grant: Grant) -> Held {
        let (consul, lock, options) =
            (self.consul.clone(), self.entry.clone(), self.options.clone());
        let (lease, done) = (session.lease().clone(), CancellationToken::new());
        let asked = done.clone();
        tracing::debug!(kv.key = lock.key, session.id = %session.id(), term = grant.term, "lock acquired");
        let kept = EndsOnDrop(lease.clone());
        let keeper = tokio::spawn(async move {
            let _kept = kept;
            let monitor = LockMonitor {
                consul: &consul,
                clock: &options.clock,
                key: &lock.key,
                session: session.id(),
                wait: options.wait,
                retries: options.monitor_retries,
                retry_time: options.monitor_retry_time,
            };
            let loss = tokio::select! {
                loss = monitor.run() => session.lease().end(loss),
                loss = session.keep() => loss,
                () = asked.cancelled() => return session.give_up(&consul, &lock).await,
            };
            if loss == Loss::Resigned {
                // `unlock` ends the lease before it cancels the token.
                return session.give_up(&consul, &lock).await;
            }
            tracing::warn!(kv.key = lock.key, %loss, "the lock was lost");
            // A release would let another in while this holder's last step may still be running.
            session.abandon().await;
            Ok(())
        });
        Held { lease, done, keeper }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.options.clock)
    }
}

/// Session of a lock, by the one who renews it.
enum Owner {
    Lock(Opened),
    Caller(SessionId, Lease),
}

impl Owner {
    fn id(&self) -> &SessionId {
        match self {
            Self::Lock(session) => session.id(),
            Self::Caller(id, _) => id,
        }
    }

    fn lease(&self) -> &Lease {
        match self {
            Self::Lock(session) => session.lease(),
            Self::Caller(_, lease) => lease,
        }
    }

    /// Renews until the lease has ended.
    async fn keep(&self) -> Loss {
        match self {
            Self::Lock(session) => session.renew().await,
            Self::Caller(_, lease) => lease.watch().await,
        }
    }

    /// Releases the lock, then ends a session of the lock's own, because a session that ends while
    /// it holds the lock costs the next holder the lock-delay.
    async fn give_up(&self, consul: &Consul, lock: &LockKey) -> Result<()> {
        self.lease().end(Loss::Resigned);
        let released = release(consul, lock, self.id()).await;
        if let Self::Lock(session) = self {
            session.destroy().await;
        }
        released.map(drop)
    }

    /// Ends a session of the lock's own after a loss. A caller's session stays, and with it the
    /// lock, until the caller ends it.
    async fn abandon(&self) {
        if let Self::Lock(session) = self {
            session.abandon().await;
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("key", &self.entry.key).finish_non_exhaustive()
    }
}
