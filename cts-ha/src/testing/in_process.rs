use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::Clock;
use tokio::sync::watch;

use crate::{Candidate, Elector, FencingToken, Leader, Leadership, Lease, Loss, Result, Timing};

/// An election among candidates in this process, without a Consul.
///
/// It keeps a lock as Consul does: a holder has to be heard of, is given up
/// after two TTLs of silence, and then nobody holds the lock for the
/// lock-delay. Its own time is tokio's, which a test can pause.
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
    urn: Mutex<Urn>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Urn {
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

/// One candidate of a [`Ballot`].
#[derive(Clone)]
pub struct InProcessElector {
    shared: Arc<Shared>,
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    cut: watch::Sender<bool>,
}

impl Ballot {
    /// An election with this timing and lock-delay.
    pub fn new(timing: Timing, lock_delay: Duration) -> Self {
        let shared =
            Shared { timing, lock_delay, urn: Mutex::default(), changed: watch::Sender::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// A candidate that measures its lease with `clock`.
    pub fn candidate(&self, id: &str, clock: Arc<dyn Clock>) -> InProcessElector {
        InProcessElector {
            shared: Arc::clone(&self.shared),
            candidate: Candidate::new(id),
            clock,
            cut: watch::Sender::new(false),
        }
    }
}

impl Shared {
    /// What holds now: a holder not heard of for two TTLs is none.
    fn urn(&self) -> MutexGuard<'_, Urn> {
        let mut urn = self.urn.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = self.timing.ttl * 2;
        if let Some(holder) = urn.holder.take_if(|holder| holder.heard.elapsed() >= silent) {
            urn.free_from = Some(holder.heard + silent + self.lock_delay);
        }
        urn
    }

    fn acquire(&self, leader: Leader) -> Option<u64> {
        let mut urn = self.urn();
        let delayed = urn.free_from.is_some_and(|from| tokio::time::Instant::now() < from);
        if urn.holder.is_some() || delayed {
            return None;
        }
        urn.term += 1;
        let term = urn.term;
        urn.holder = Some(Holder { term, leader, heard: tokio::time::Instant::now() });
        drop(urn);
        self.changed.send_modify(|count| *count += 1);
        Some(term)
    }

    /// Whether the holder of this term holds on.
    fn renew(&self, term: u64) -> bool {
        let mut urn = self.urn();
        let Some(holder) = urn.holder.as_mut().filter(|holder| holder.term == term) else {
            return false;
        };
        holder.heard = tokio::time::Instant::now();
        true
    }

    fn release(&self, term: u64) {
        self.urn().holder.take_if(|holder| holder.term == term);
        self.changed.send_modify(|count| *count += 1);
    }

    /// When it makes sense to try again without a change.
    fn due(&self) -> Option<tokio::time::Instant> {
        let urn = self.urn();
        let silent = urn.holder.as_ref().map(|holder| holder.heard + self.timing.ttl * 2);
        silent.or(urn.free_from)
    }
}

impl InProcessElector {
    /// Cuts this candidate off from the others, or lets it reach them again.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    async fn reachable(&self) {
        let mut cut = self.cut.subscribe();
        // The sender lives as long as this candidate.
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
            self.reachable().await;
            changed.borrow_and_update();
            let start = self.clock.monotonic();
            let leader = self.candidate.leader(self.clock.now());
            if let Some(term) = self.shared.acquire(leader) {
                let lease = Lease::since(Arc::clone(&self.clock), start, timing.lease);
                let (own, kept) = (self.clone(), lease.clone());
                let token = FencingToken::new(term);
                return Ok(Leadership::start(
                    lease,
                    token,
                    timing.margin(),
                    |resigned| async move {
                        tokio::select! {
                            _loss = own.clone().keep(kept.clone(), term) => {}
                            () = resigned.cancelled() => {}
                        }
                        kept.end(Loss::Resigned);
                        // One that is cut off cannot tell the others.
                        if !*own.cut.borrow() {
                            own.shared.release(term);
                        }
                    },
                ));
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
        self.shared.urn().holder.as_ref().map(|holder| holder.leader.clone())
    }
}

impl fmt::Debug for InProcessElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessElector")
            .field("candidate", &self.candidate.id)
            .finish_non_exhaustive()
    }
}
