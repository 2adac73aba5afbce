//! Election among candidates of one process, for tests.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{
    Client, Clock,
    testing::TestConsul,
    types::{KvOp, SessionId, SessionRequest},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Candidate, Consul, Elector, FencingToken, Leader, Leadership, Lease, Loss, Result, Timing,
    leadership::Fence,
};

/// Election among candidates in this process, without a Consul.
///
/// It keeps a lock as Consul does: a holder has to renew, loses the lock after two TTLs of silence,
/// and then nobody can hold it for the lock-delay. Its own time is tokio's, which a test can pause.
/// Writes by [commit](Leadership::commit) go to a KV store of its own, [`Ballot::client`].
///
/// A test of a program's failover takes a few lines, and no waiting:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
/// use std::{sync::Arc, time::Duration};
/// use consul_watch::{testing::TestClock, types::KvOp};
/// use cts_ha::{Elector as _, Timing, testing::Ballot};
///
/// let (ttl, lock_delay) = (Duration::from_secs(15), Duration::from_secs(15));
/// let ballot = Ballot::new(Timing::new(ttl, lock_delay)?, lock_delay);
/// let one = ballot.candidate("one", Arc::new(TestClock::default()));
/// let two = ballot.candidate("two", Arc::new(TestClock::default()));
/// let first = one.campaign().await?;
/// first.commit(vec![KvOp::set("app/step", "1")]).await?;
/// one.die();
/// let second = two.campaign().await?; // after 2 x TTL + lock-delay on the paused clock
/// assert!(first.commit(vec![KvOp::set("app/step", "2")]).await.is_err());
/// assert!(second.token() > first.token());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use consul_watch::SystemClock;
/// use cts_ha::{Elector as _, Timing, testing::Ballot};
///
/// let timing = Timing::new(std::time::Duration::from_secs(10), Default::default())?;
/// let ballot = Ballot::new(timing, std::time::Duration::ZERO);
/// let elector = ballot.candidate("one", Arc::new(SystemClock));
/// let leadership = elector.campaign().await?;
/// assert_eq!(elector.leader().map(|leader| leader.id).as_deref(), Some("one"));
/// leadership.resign().await;
/// # Ok::<(), cts_ha::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Ballot {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    timing: Timing,
    lock_delay: Duration,
    state: Mutex<LockState>,
    changed: watch::Sender<u64>,
    /// Store with the keys of the leaders, and the lock that fences them.
    store: TestConsul,
    /// Session that holds the lock in `store`.
    fence: tokio::sync::Mutex<Option<SessionId>>,
}

#[derive(Debug, Default)]
struct LockState {
    term: u64,
    holder: Option<Holder>,
    free_from: Option<tokio::time::Instant>,
}

#[derive(Debug)]
struct Holder {
    term: u64,
    leader: Leader,
    heard: tokio::time::Instant,
}

/// Candidate of a [`Ballot`].
#[derive(Clone)]
pub struct InProcessElector {
    shared: Arc<Shared>,
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    cut: watch::Sender<bool>,
    dead: CancellationToken,
}

/// Key of the lock in the store of a [`Ballot`].
const LOCK: &str = "ballot/leader";

impl Ballot {
    /// Creates an election with this timing and lock-delay.
    pub fn new(timing: Timing, lock_delay: Duration) -> Self {
        let shared = Shared {
            timing,
            lock_delay,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            store: TestConsul::new(),
            fence: tokio::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a client of the KV store that leaders write to.
    pub fn client(&self) -> Client {
        self.shared.store.client()
    }

    /// Creates a candidate that measures its lease with `clock`.
    pub fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> InProcessElector {
        InProcessElector {
            shared: Arc::clone(&self.shared),
            candidate: Candidate::new(id),
            clock,
            cut: watch::Sender::new(false),
            dead: CancellationToken::new(),
        }
    }
}

impl Shared {
    /// Takes the lock in the store from its last holder, so that the store refuses commits of
    /// earlier leaders.
    async fn fence(&self) -> Result<Fence> {
        let consul = Consul::new(self.store.client());
        let mut held = self.fence.lock().await;
        if let Some(before) = held.take() {
            consul.destroy_session(&before).await?;
        }
        let mut request = SessionRequest::default();
        (request.lock_delay, request.node_checks) = (Some(Duration::ZERO), Some(Vec::new()));
        let session = consul.create_session(&request).await?;
        consul.transact(vec![KvOp::lock(LOCK, "", session.clone())]).await?;
        *held = Some(session.clone());
        Ok(Fence { consul, key: LOCK.to_owned(), session, timing: self.timing })
    }

    /// Returns the present state: a holder that was silent for two TTLs has lost the lock.
    fn lock_state(&self) -> MutexGuard<'_, LockState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = self.timing.ttl * 2;
        if let Some(holder) = state.holder.take_if(|holder| holder.heard.elapsed() >= silent) {
            state.free_from = Some(holder.heard + silent + self.lock_delay);
        }
        state
    }

    fn acquire(&self, leader: Leader) -> Option<u64> {
        let mut state = self.lock_state();
        let delayed = state.free_from.is_some_and(|from| tokio::time::Instant::now() < from);
        if state.holder.is_some() || delayed {
            return None;
        }
        state.term += 1;
        let term = state.term;
        state.holder = Some(Holder { term, leader, heard: tokio::time::Instant::now() });
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        Some(term)
    }

    /// Records a renewal; returns `false` if the holder of this term has lost the lock.
    fn renew(&self, term: u64) -> bool {
        let mut state = self.lock_state();
        let Some(holder) = state.holder.as_mut().filter(|holder| holder.term == term) else {
            return false;
        };
        holder.heard = tokio::time::Instant::now();
        true
    }

    fn release(&self, term: u64) {
        self.lock_state().holder.take_if(|holder| holder.term == term);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the time at which another attempt makes sense without a change.
    fn due(&self) -> Option<tokio::time::Instant> {
        let state = self.lock_state();
        let silent = state.holder.as_ref().map(|holder| holder.heard + self.timing.ttl * 2);
        silent.or(state.free_from)
    }
}

impl InProcessElector {
    /// Cuts this candidate off from the others, or reconnects it.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    /// Ends this candidate as a crash of its process would: silently. The others lead when two TTLs
    /// and the lock-delay have passed. Its leadership ends with [`Loss::Abandoned`], and it never
    /// campaigns again.
    pub fn die(&self) {
        self.dead.cancel();
    }

    async fn reachable(&self) {
        let mut cut = self.cut.subscribe();
        // The sender lives as long as this candidate, so this cannot fail.
        drop(cut.wait_for(|cut| !*cut).await);
    }

    async fn keep(self, lease: Lease, term: u64) -> Loss {
        let timing = self.shared.timing;
        let renewing = async {
            loop {
                self.clock.sleep(timing.interval).await;
                self.reachable().await;
                let start = self.clock.monotonic();
                if !self.shared.renew(term) {
                    return lease.end(Loss::SessionEnded);
                }
                lease.renew(start, timing.lease);
            }
        };
        tokio::select! {
            loss = renewing => loss,
            loss = lease.watch() => loss,
        }
    }
}

#[async_trait]
impl Elector for InProcessElector {
    async fn campaign(&self) -> Result<Leadership> {
        let mut changed = self.shared.changed.subscribe();
        let timing = self.shared.timing;
        loop {
            if self.dead.is_cancelled() {
                std::future::pending::<()>().await;
            }
            self.reachable().await;
            changed.borrow_and_update();
            let start = self.clock.monotonic();
            let leader = self.candidate.leader(self.clock.now());
            if let Some(term) = self.shared.acquire(leader) {
                let lease = Lease::since(Arc::clone(&self.clock), start, timing.lease);
                let (own, kept) = (self.clone(), lease.clone());
                let token = FencingToken::new(term);
                let fence = self.shared.fence().await?;
                let keep = |resigned: CancellationToken| async move {
                    // Resigning ends the lease, too, so the reason counts and not the branch.
                    let loss = tokio::select! {
                        // A dead process does not resign either.
                        biased;
                        () = own.dead.cancelled() => kept.end(Loss::Abandoned),
                        () = resigned.cancelled() => kept.end(Loss::Resigned),
                        loss = own.clone().keep(kept.clone(), term) => loss,
                    };
                    // A candidate that is cut off reaches nobody, and one that has lost the lock is
                    // found to be silent, as its last step may still be running.
                    let dead = own.dead.is_cancelled();
                    if loss == Loss::Resigned && !dead && !*own.cut.borrow() {
                        own.shared.release(term);
                    }
                };
                let margin = timing.margin();
                return Ok(Leadership::fenced(lease, token, margin, Some(fence), keep));
            }
            let due = self.shared.due();
            tokio::select! {
                _changed = changed.changed() => {}
                () = async {
                    match due {
                        Some(due) => tokio::time::sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    fn leader(&self) -> Option<Leader> {
        self.shared.lock_state().holder.as_ref().map(|holder| holder.leader.clone())
    }
}

impl fmt::Debug for InProcessElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessElector")
            .field("candidate", &self.candidate.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use consul_watch::testing::TestClock;

    use super::*;

    /// A dead process does nothing more, such as releasing its lock.
    #[tokio::test(start_paused = true)]
    async fn a_candidate_that_died_does_not_resign() {
        let (ttl, lock_delay) = (Duration::from_secs(15), Duration::from_secs(15));
        // Which of two futures that are both ready comes first is random.
        for _ in 0..20 {
            let ballot = Ballot::new(Timing::new(ttl, lock_delay).unwrap(), lock_delay);
            let one = ballot.candidate("one", Arc::new(TestClock::default()));
            let two = ballot.candidate("two", Arc::new(TestClock::default()));
            let first = one.campaign().await.unwrap();
            let died = tokio::time::Instant::now();
            one.die();
            first.resign().await;
            two.campaign().await.unwrap();
            assert!(died.elapsed() >= ttl * 2 + lock_delay, "{:?}", died.elapsed());
        }
    }
}
