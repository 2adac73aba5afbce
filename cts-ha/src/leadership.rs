use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use consul_watch::types::{KvOp, SessionId, TxnOutcome};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Consul, Error, Lease, Loss, Result, contest::bounded};

/// Orders leaderships: of two the later one has the larger token.
///
/// What a leader changes can refuse a token that is smaller than one it has
/// seen. With Consul it is the index of the acquisition, which survives that
/// the lock's key is deleted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token of this rank.
    pub fn new(rank: u64) -> Self {
        Self(rank)
    }

    /// Its rank.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to lead, while it lasts.
///
/// Clones are the same leadership. It ends by [`Leadership::resign`], by loss,
/// or when the last clone is dropped, which resigns in the background.
///
/// Ask [`Leadership::check`] before each step that changes something, and stop
/// what takes long when [`Leadership::ended`] is cancelled. What is kept in
/// Consul's KV store is safe beyond that: [`Leadership::commit`] has Consul
/// itself refuse the writes of a leader that was deposed.
#[derive(Clone)]
pub struct Leadership {
    inner: Arc<Inner>,
}

struct Inner {
    lease: Lease,
    token: FencingToken,
    margin: Duration,
    fence: Option<Fence>,
    resigned: CancellationToken,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// The lock in Consul that a leadership stands for.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    pub(crate) consul: Consul,
    pub(crate) key: String,
    pub(crate) session: SessionId,
}

/// How long a fenced write may take.
const WRITE: Duration = Duration::from_secs(10);

impl Leadership {
    /// A leadership for an elector of one's own. `keep` runs in a task: it
    /// renews `lease`, ends it on loss, and returns once the token that it is
    /// given was cancelled, or the lease has ended, and everything is given up.
    ///
    /// `margin` is what is left after the end of the lease before another may lead.
    pub fn start<K, F>(lease: Lease, token: FencingToken, margin: Duration, keep: K) -> Self
    where
        K: FnOnce(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::fenced(lease, token, margin, None, keep)
    }

    pub(crate) fn fenced<K, F>(
        lease: Lease,
        token: FencingToken,
        margin: Duration,
        fence: Option<Fence>,
        keep: K,
    ) -> Self
    where
        K: FnOnce(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let resigned = CancellationToken::new();
        let keeper = Mutex::new(Some(tokio::spawn(keep(resigned.clone()))));
        Self { inner: Arc::new(Inner { lease, token, margin, fence, resigned, keeper }) }
    }

    /// Whether this process leads now, by its own clock. Waits for nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] with the reason.
    pub fn check(&self) -> Result<()> {
        self.inner.lease.check().map_err(Error::Ended)
    }

    /// Cancelled when leadership has ended.
    pub fn ended(&self) -> &CancellationToken {
        self.inner.lease.ended()
    }

    /// Why it has ended, if it has.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.lease.loss()
    }

    /// Its place in the order of all leaderships.
    pub fn token(&self) -> FencingToken {
        self.inner.token
    }

    /// The lease that it stands on.
    pub fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    /// How long after the lease's end another may lead at the earliest: what
    /// a step that is under way has for ending.
    pub fn margin(&self) -> Duration {
        self.inner.margin
    }

    /// Carries out operations on Consul's KV store together, if this leader has
    /// not been deposed; Consul checks that and writes in one step.
    ///
    /// This protects what is kept in Consul. It does not protect what a step
    /// changes elsewhere: a Terraform run that is under way when leadership ends
    /// has to be ended, within [`Leadership::margin`].
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] when leadership is over, which no retry cures, or when
    /// it ended before Consul answered; then the operations may have taken
    /// effect. [`Error::Setting`] from an elector without Consul. Other errors
    /// of Consul may be retried as they say.
    pub async fn commit(&self, ops: Vec<KvOp>) -> Result<TxnOutcome> {
        self.check()?;
        let fence = self.fence()?;
        let mut all = Vec::with_capacity(ops.len() + 1);
        all.push(KvOp::check_session(&fence.key, fence.session.clone()));
        all.extend(ops);
        let outcome = tokio::select! {
            outcome = bounded("write as leader", WRITE, fence.consul.transact(all)) => outcome?,
            () = self.ended().cancelled() => {
                return Err(Error::Ended(self.loss().unwrap_or(Loss::LeaseExpired)));
            }
        };
        let TxnOutcome::RolledBack(mut failures) = outcome else { return Ok(outcome) };
        if failures.iter().any(|failure| failure.op_index == 0) {
            tracing::warn!(
                kv.key = fence.key,
                reason = crate::consul::reasons(&failures),
                "Consul refused a write because another leads"
            );
            return Err(Error::Ended(self.inner.lease.end(Loss::Refused)));
        }
        for failure in &mut failures {
            failure.op_index -= 1;
        }
        Ok(TxnOutcome::RolledBack(failures))
    }

    /// The lock in Consul.
    pub(crate) fn fence(&self) -> Result<&Fence> {
        self.inner.fence.as_ref().ok_or(Error::Setting {
            setting: "elector",
            problem: "this leadership does not come from Consul, so Consul cannot fence its writes"
                .to_owned(),
        })
    }

    /// Gives leadership up and waits until that is done, so that another can
    /// lead at once. It has ended for this process before anyone else is told.
    pub async fn resign(&self) {
        self.inner.lease.end(Loss::Resigned);
        self.inner.resigned.cancel();
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // A keeper that panicked leaves everything to the session's TTL.
            drop(keeper.await);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lease.end(Loss::Resigned);
        self.resigned.cancel();
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("token", &self.inner.token)
            .field("lease", &self.inner.lease)
            .finish_non_exhaustive()
    }
}
