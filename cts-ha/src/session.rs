//! Consul sessions: created, renewed in time, and ended.

use std::{fmt, sync::Arc, time::Duration};

use consul_watch::{
    Clock,
    types::{SessionBehavior, SessionId, SessionRequest},
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{Consul, Error, Lease, Loss, Result, Timing, lease::EndsOnDrop};

/// Settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Name for people; default `Consul API Lock`, that of Consul's own client.
    pub name: String,
    /// Time to live: Consul ends the session between one and two of these after its last renewal.
    /// Default 15 s; at least the server's `session_ttl_min` (10 s), at most 24 h.
    pub ttl: Duration,
    /// Time for which its keys cannot be acquired after it has ended in any way but by a release;
    /// default 15 s, at most 60 s. See [`Timing::new`] for 0.
    pub lock_delay: Duration,
    /// Treatment of its keys when it ends; by default they stay.
    pub behavior: SessionBehavior,
    /// Checks of the agent's node that end it when they turn critical. `None`, the default, is the
    /// gossip check of the node; an empty list is none.
    pub node_checks: Option<Vec<String>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            name: "Consul API Lock".to_owned(),
            ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(15),
            behavior: SessionBehavior::Release,
            node_checks: None,
        }
    }
}

impl SessionOptions {
    fn request(&self) -> SessionRequest {
        let mut request = SessionRequest::default();
        request.name.clone_from(&self.name);
        request.ttl = Some(self.ttl);
        request.lock_delay = Some(self.lock_delay);
        request.behavior = self.behavior;
        request.node_checks.clone_from(&self.node_checks);
        request
    }
}

/// Longest time for which ending a session may hold up its owner.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Session that was created and has to be renewed.
pub(crate) struct Opened {
    consul: Consul,
    id: SessionId,
    lease: Lease,
    timing: Timing,
    lock_delay: Duration,
    clock: Arc<dyn Clock>,
}

impl Opened {
    pub(crate) async fn create(
        consul: &Consul,
        options: &SessionOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let timing = Timing::new(options.ttl, options.lock_delay)?;
        // Before the request: Consul's TTL cannot have begun earlier.
        let start = clock.monotonic();
        let id = consul.create_session(&options.request()).await?;
        let lease = Lease::since(Arc::clone(clock), start, timing.lease);
        let (consul, clock) = (consul.clone(), Arc::clone(clock));
        Ok(Self { consul, id, lease, timing, lock_delay: options.lock_delay, clock })
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// Renews until the lease has ended, by the session's end or by the clock.
    ///
    /// Dropping the future leaves the session to its TTL.
    ///
    /// Source: Consul Go client `api/session.go` (`RenewPeriodic`).
    /// Deviation: there nothing learns of failed renewals; here the lease ends.
    pub(crate) async fn renew(&self) -> Loss {
        let renewing = async {
            let mut wait = self.due();
            loop {
                self.clock.sleep(wait).await;
                wait = match self.renew_once().await {
                    Ok(timing) => timing.interval,
                    Err(Error::SessionExpired) => return self.lease.end(Loss::SessionEnded),
                    Err(error) => {
                        tracing::warn!(
                            session.id = %self.id,
                            error = &error as &dyn std::error::Error,
                            "cannot renew the session, trying again"
                        );
                        // Sooner than a regular renewal, so that a second attempt fits into the
                        // lease.
                        self.timing.retry
                    }
                };
            }
        };
        tokio::select! {
            loss = renewing => loss,
            loss = self.lease.watch() => loss,
        }
    }

    /// Returns the time until the next renewal is due.
    ///
    /// The last one may be long past, because a candidate also renews before it becomes the leader.
    fn due(&self) -> Duration {
        self.timing.interval.saturating_sub(self.lease.age(self.timing.lease))
    }

    /// Renews once. The TTL in the answer counts if it is shorter.
    async fn renew_once(&self) -> Result<Timing> {
        // Before the request, as for the creation.
        let start = self.clock.monotonic();
        let renewing = self.consul.renew_session(&self.id);
        let renewed =
            timeout(self.timing.timeout, renewing).await.map_err(|_late| Error::Other {
                operation: "renew session",
                retryable: true,
                source: format!("no answer within {:?}", self.timing.timeout).into(),
            })??;
        let session = renewed.ok_or(Error::SessionExpired)?;
        let mut timing = self.timing;
        // A server may enforce a shorter TTL than was asked for; ours would then believe too long.
        if let Some(ttl) = session.ttl.filter(|ttl| *ttl < timing.ttl) {
            timing = Timing::new(ttl, session.lock_delay.min(crate::timing::LONGEST_LOCK_DELAY))?;
        }
        self.lease.renew(start, timing.lease);
        Ok(timing)
    }

    /// Ends the session of a lost lock, without releasing the lock.
    ///
    /// The end of a session that holds a lock starts the lock-delay, in which nobody can acquire
    /// it: time for the last step of the old holder. Without a lock-delay the session is left to
    /// its TTL, which is no shorter than [`Timing::margin`] after the end of the lease.
    ///
    /// Source: Consul `agent/consul/state/session.go`; measured on 1.8.7 and 1.19.2.
    pub(crate) async fn abandon(&self) {
        if self.lock_delay >= self.timing.margin() {
            self.destroy().await;
        } else {
            self.leave_to_ttl();
        }
    }

    /// Stops renewing the session, so that Consul ends it between one and two TTLs after the last
    /// renewal.
    pub(crate) fn leave_to_ttl(&self) {
        tracing::debug!(session.id = %self.id, "the session is left to its TTL");
    }

    /// Destroys the session, if Consul answers soon.
    pub(crate) async fn destroy(&self) {
        self.lease.end(Loss::Resigned);
        match timeout(SHUTDOWN_LIMIT, self.consul.destroy_session(&self.id)).await {
            Ok(Ok(())) => tracing::debug!(session.id = %self.id, "session destroyed"),
            Ok(Err(error)) => tracing::warn!(
                session.id = %self.id,
                error = &error as &dyn std::error::Error,
                "cannot destroy the session, its TTL will end it"
            ),
            Err(_late) => tracing::warn!(
                session.id = %self.id,
                "Consul did not answer, the session's TTL will end it"
            ),
        }
    }
}

/// Renews a session until `done` is cancelled, then destroys it.
///
/// # Cancel safety
///
/// Dropping the future stops at once and leaves the session to its TTL.
///
/// # Errors
///
/// [`Error::SessionExpired`] if Consul no longer knows the session, [`Error::Ended`] if a lease has
/// passed without a renewal.
///
/// Source: Consul Go client `api/session.go` (`RenewPeriodic`).
/// Deviation: a dropped future cancels, which is no error.
pub async fn renew_until(
    consul: &Consul,
    id: SessionId,
    timing: Timing,
    clock: Arc<dyn Clock>,
    done: &CancellationToken,
) -> Result<()> {
    let lease = Lease::new(Arc::clone(&clock), timing.lease);
    let lock_delay = Duration::ZERO;
    let session = Opened { consul: consul.clone(), id, lease, timing, lock_delay, clock };
    tokio::select! {
        loss = session.renew() => match loss {
            Loss::SessionEnded => Err(Error::SessionExpired),
            loss => Err(Error::Ended(loss)),
        },
        () = done.cancelled() => {
            session.destroy().await;
            Ok(())
        }
    }
}

/// Session that a task of its own renews.
///
/// [`KeptSession::close`] destroys it. Dropped without that, it is destroyed in the background, or
/// by its TTL at the latest.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use std::sync::Arc;
/// use consul_watch::SystemClock;
/// use cts_ha::{Consul, KeptSession, SessionOptions};
///
/// let consul = Consul::new(consul); // a consul_watch::Client
/// let session =
///     KeptSession::create(&consul, &SessionOptions::default(), Arc::new(SystemClock)).await?;
/// assert!(session.lease().check().is_ok());
/// session.close().await;
/// # Ok::<(), cts_ha::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeptSession {
    id: SessionId,
    lease: Lease,
    done: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl KeptSession {
    /// Creates a session and keeps it renewed.
    ///
    /// # Errors
    ///
    /// [`Error::Permission`] without `session:write`, [`Error::Setting`] for a TTL or lock-delay
    /// out of range; otherwise the error of Consul.
    pub async fn create(
        consul: &Consul,
        options: &SessionOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let session = Opened::create(consul, options, &clock).await?;
        let (id, lease) = (session.id().clone(), session.lease().clone());
        let done = CancellationToken::new();
        let asked = done.clone();
        let kept = EndsOnDrop(lease.clone());
        let task = tokio::spawn(async move {
            let _kept = kept;
            tokio::select! {
                loss = session.renew() => {
                    tracing::debug!(session.id = %session.id(), %loss, "session is kept no more");
                }
                () = asked.cancelled() => {}
            }
            // Also after a loss: a session that is still there would hold its keys for nothing.
            session.destroy().await;
        });
        Ok(Self { id, lease, done, task: Some(task) })
    }

    /// Returns its id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the lease for which its keys may be believed to be held.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Destroys it. Waits at most 2 s for Consul's answer.
    pub async fn close(mut self) {
        self.lease.end(Loss::Resigned);
        self.done.cancel();
        if let Some(task) = self.task.take() {
            // A task that panicked leaves the session to its TTL.
            drop(task.await);
        }
    }
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

impl fmt::Debug for KeptSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptSession")
            .field("id", &self.id)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
