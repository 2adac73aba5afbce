//! Election of a leader with a session and a lock in Consul.
//!
//! Life of a term that this process holds:
//!
//! | state | event | next state | action |
//! | --- | --- | --- | --- |
//! | candidate | the lock is acquired, and the lease still runs | leader | renew, and watch the key |
//! | candidate | the session ends | candidate | release and destroy; a new session after a pause |
//! | candidate | the future is dropped | gone | release and destroy in the background |
//! | leader | resigned, or the last clone dropped | ended | end the lease, release, destroy |
//! | leader | lease expired, session gone, key taken or unreadable | ended | end the lease; destroy without a release, or leave the session to its TTL |

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{Backoff, Clock, Jitter, SystemClock, types::KvPair};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    Candidate, Consul, Elector, Error, FencingToken, Leader, Leadership, Lease, Loss, Result,
    SessionOptions,
    cleanup::CleanUp,
    leadership::Fence,
    lock_key::{Grant, LOCK_FLAGS, LockAcquirer, LockKey, LockMonitor, release},
    session::Opened,
    term::Closing,
};

/// Settings of an election in Consul.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// TTL of the session; default 15 s. A longer one makes failover slower. The minimum is the
    /// server's `session_ttl_min`, 10 s by default.
    pub session_ttl: Duration,
    /// Time for which nobody can lead after a session has ended in any way but by a resignation;
    /// default 15 s, at most 60 s. See [`crate::Timing::new`] for 0.
    pub lock_delay: Duration,
    /// Name of the session, for people; default `cts-ha` and the candidate's id.
    pub session_name: Option<String>,
    /// Pause between two attempts while the lock-delay runs; default 250 ms, which is the most that
    /// it adds to a failover.
    ///
    /// Deviation: Consul's own client waits 5 s.
    pub delayed: Duration,
    /// Number of consecutive reads of the lock that may fail while leading; default 5.
    pub monitor_retries: u32,
    /// Pause between such reads; default 2 s.
    pub monitor_retry_time: Duration,
    /// Clock that measures leases; by default the machine's, which counts suspend.
    pub clock: Arc<dyn Clock>,
}

impl Default for ElectionOptions {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(15),
            session_name: None,
            delayed: Duration::from_millis(250),
            monitor_retries: 5,
            monitor_retry_time: Duration::from_secs(2),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Elector that uses a session and a lock in Consul.
///
/// When a leader resigns, the next one leads after one round trip. When it dies or is cut off,
/// another leads within 2 x TTL + lock-delay + the time of one attempt: Consul ends a session at
/// twice its TTL at the latest.
///
/// If an operator deletes the lock's key, or releases it with the leader's session, Consul sets no
/// lock-delay: another leads at once, and the deposed leader notices with the next answer, or when
/// its lease ends if it is cut off. [`Leadership::commit`] is refused from the first moment.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions, ElectorExt as _};
///
/// let consul = Consul::new(consul); // a consul_watch::Client
/// let elector = ConsulElector::new(
///     &consul, "app/leader", Candidate::new("node-1"), ElectionOptions::default())?;
/// let done = elector
///     .run(|leadership| async move {
///         // work; ask before each step, or select on leadership.ended()
///         leadership.check().is_ok()
///     })
///     .await?;
/// assert!(done);
/// # Ok::<(), cts_ha::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ConsulElector {
    consul: Consul,
    key: String,
    candidate: Candidate,
    options: ElectionOptions,
    session: SessionOptions,
    leader: Arc<Mutex<Option<Leader>>>,
    /// Background tasks that give up dropped candidacies.
    shutdowns: TaskTracker,
    /// Leaderships that may not be released yet.
    held_terms: Mutex<Vec<HeldTerm>>,
}

/// Term of leadership, as its elector remembers it.
#[derive(Clone)]
struct HeldTerm {
    lease: Lease,
    /// Cancelled when lock and session are released, or cannot be.
    given_back: CancellationToken,
}

impl ConsulElector {
    /// Creates an elector for the lock on `key`; sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a TTL or lock-delay out of range, or an empty key.
    pub fn new(
        consul: &Consul,
        key: impl Into<String>,
        candidate: Candidate,
        options: ElectionOptions,
    ) -> Result<Self> {
        let key = key.into();
        if key.is_empty() || key.starts_with('/') {
            return Err(Error::Setting {
                setting: "key",
                problem: format!("{key:?} cannot be a key in Consul: empty, or with a leading /"),
            });
        }
        crate::Timing::new(options.session_ttl, options.lock_delay)?;
        if options.lock_delay.is_zero() {
            tracing::warn!(
                "the lock-delay is zero: a leader that is cut off can go on for up to 4/5 of the \
                 TTL when its session is destroyed or its node is taken for failed"
            );
        }
        let name = options.session_name.clone();
        let session = SessionOptions {
            name: name.unwrap_or_else(|| format!("cts-ha-{}", candidate.id)),
            ttl: options.session_ttl,
            lock_delay: options.lock_delay,
            ..SessionOptions::default()
        };
        Ok(Self {
            consul: consul.clone(),
            key,
            candidate,
            options,
            session,
            leader: Arc::default(),
            shutdowns: TaskTracker::new(),
            held_terms: Mutex::default(),
        })
    }

    /// Waits until dropped candidacies and ended leaderships have been released in Consul, for a
    /// few seconds at most, also if Consul does not answer.
    ///
    /// A program that ends should await it after it has dropped [`Elector::campaign`],
    /// [`ElectorExt::run`](crate::ElectorExt::run) or a [`Leadership`]; otherwise a session lasts
    /// until its TTL, and the lock with it.
    pub async fn shutdown(&self) {
        // `wait` returns only for a closed tracker; reopened, the elector can be used again.
        self.shutdowns.close();
        self.shutdowns.wait().await;
        self.shutdowns.reopen();
        let ended: Vec<_> =
            self.held_terms().iter().filter(|term| term.lease.check().is_err()).cloned().collect();
        for term in ended {
            term.given_back.cancelled().await;
        }
    }

    fn held_terms(&self) -> MutexGuard<'_, Vec<HeldTerm>> {
        // A panic cannot leave the list half changed.
        self.held_terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a leadership. Dropping the returned guard marks it as released.
    fn hold_term(&self, lease: &Lease) -> DropGuard {
        let given_back = CancellationToken::new();
        let mut held_terms = self.held_terms();
        // Pruned here, so that the list does not grow with the number of terms.
        held_terms.retain(|term| !term.given_back.is_cancelled());
        held_terms.push(HeldTerm { lease: lease.clone(), given_back: given_back.clone() });
        given_back.drop_guard()
    }

    /// Runs for election with one session.
    async fn stand(&self) -> Result<Leadership> {
        let clock = &self.options.clock;
        let session = Arc::new(Opened::create(&self.consul, &self.session, clock).await?);
        let lock = self.lock_key();
        // Consul may be about to grant the lock at the moment at which the future is dropped.
        let leaving = {
            let (consul, lock, session) = (self.consul.clone(), lock.clone(), Arc::clone(&session));
            async move { give_up(&consul, &lock, &session).await }
        };
        let candidacy = CleanUp::tracked(leaving, &self.shutdowns);
        let acquirer = LockAcquirer {
            consul: &self.consul,
            clock,
            lock: &lock,
            session: session.id(),
            wait: self.options.session_ttl,
            limit: None,
            delayed: self.options.delayed,
            observe: &|pair| self.observe(pair),
        };
        // The renewal runs beside the attempt, since waiting for the lock may take days.
        let outcome = tokio::select! {
            outcome = acquirer.run() => outcome,
            loss = session.renew() => {
                tracing::warn!(%loss, "the candidate's session has ended, standing again");
                Err(Error::SessionExpired)
            }
        };
        let granted = match outcome {
            // A grant is worth nothing if the lease expired while the answer was on its way.
            Ok(Some(grant)) if session.lease().check().is_ok() => Ok(grant),
            Ok(_) => Err(Error::SessionExpired),
            Err(error) => Err(error),
        };
        match granted {
            Ok(grant) => {
                candidacy.disarm();
                Ok(self.lead(session, lock, grant))
            }
            Err(error) => {
                // An attempt whose answer was lost may have acquired the lock.
                give_up(&self.consul, &lock, &session).await;
                candidacy.disarm();
                Err(error)
            }
        }
    }

    fn lead(&self, session: Arc<Opened>, lock: LockKey, grant: Grant) -> Leadership {
        tracing::info!(target: "ha", id = self.candidate.id, "acquired leadership lock");
        let token = FencingToken::new(grant.term);
        set(&self.leader, parse(&lock.value));
        let lease = session.lease().clone();
        let margin = session.timing().margin();
        let fence = Fence {
            consul: self.consul.clone(),
            key: self.key.clone(),
            session: session.id().clone(),
            timing: session.timing(),
        };
        let (consul, options) = (self.consul.clone(), self.options.clone());
        let leader = Arc::clone(&self.leader);
        let given_back = self.hold_term(&lease);
        Leadership::fenced(lease, token, margin, Some(fence), |resigned| async move {
            let _given_back = given_back;
            let monitor = LockMonitor {
                consul: &consul,
                clock: &options.clock,
                key: &lock.key,
                session: session.id(),
                wait: options.session_ttl,
                retries: options.monitor_retries,
                retry_time: options.monitor_retry_time,
            };
            // The first reason wins: the lease keeps it, and the others only report it.
            let loss = tokio::select! {
                loss = monitor.run() => Some(session.lease().end(loss)),
                loss = session.renew() => Some(loss),
                () = resigned.cancelled() => None,
            };
            let loss = loss.unwrap_or_else(|| session.lease().end(Loss::Resigned));
            set(&leader, None);
            match Closing::of(loss) {
                Closing::Release => {
                    tracing::info!(target: "ha", "released leadership lock");
                    give_up(&consul, &lock, &session).await;
                }
                Closing::Abandon => {
                    tracing::warn!(target: "ha", reason = %loss, "lost leadership lock");
                    session.abandon().await;
                }
            }
        })
    }

    fn lock_key(&self) -> LockKey {
        let leader = self.candidate.leader(self.options.clock.now());
        let value = serde_json::to_vec(&leader).unwrap_or_default();
        LockKey { key: self.key.clone(), flags: LOCK_FLAGS, value: value.into() }
    }

    /// Stores who holds the lock, and reports another process with this one's id.
    fn observe(&self, pair: Option<&KvPair>) {
        let held = pair.filter(|pair| pair.session.is_some());
        let seen = held.and_then(|pair| parse(&pair.value));
        if let Some(seen) = &seen
            && seen.id == self.candidate.id
            && seen.uuid != self.candidate.uuid
        {
            tracing::error!(
                target: "ha",
                id = seen.id,
                uuid = seen.uuid,
                "another process with the same id holds the leadership lock: if this instance was \
                 restarted after a crash, its earlier process, until its session ends; if not, \
                 another instance has the same id, and ids must be unique"
            );
        }
        set(&self.leader, seen);
    }
}

/// Releases the lock in an orderly way, when nothing is under way any more.
///
/// The lock is released before the session is destroyed, because a session that ends while it holds
/// the lock costs the next leader the lock-delay.
async fn give_up(consul: &Consul, lock: &LockKey, session: &Opened) {
    // First: this process must not believe in a lock that it is about to release.
    session.lease().end(Loss::Resigned);
    if let Err(error) = release(consul, lock, session.id()).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "cannot release the lock, the session's end will"
        );
    }
    session.destroy().await;
}

fn parse(value: &Bytes) -> Option<Leader> {
    serde_json::from_slice(value).ok()
}

fn set(place: &Mutex<Option<Leader>>, leader: Option<Leader>) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = leader;
}

#[async_trait]
impl Elector for ConsulElector {
    async fn campaign(&self) -> Result<Leadership> {
        // Full jitter: after an outage all candidates retry at once.
        let mut backoff = Backoff::default()
            .with_initial(Duration::from_millis(500))
            .with_cap(Duration::from_secs(5))
            .with_jitter(Jitter::Full);
        loop {
            let error = match self.stand().await {
                Ok(leadership) => return Ok(leadership),
                Err(error) => error,
            };
            set(&self.leader, None);
            if !error.is_retryable() {
                return Err(error);
            }
            let delay = backoff.next_delay();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "cannot stand for election, trying again"
            );
            self.options.clock.sleep(delay).await;
        }
    }

    fn leader(&self) -> Option<Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for ConsulElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulElector")
            .field("key", &self.key)
            .field("candidate", &self.candidate.id)
            .finish_non_exhaustive()
    }
}
