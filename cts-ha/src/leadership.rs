//! Leadership for as long as it lasts, and writes that only its holder can make.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use consul_watch::types::{KvOp, SessionId, TxnOutcome, TxnResult};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Consul, Error, Lease, Loss, RefusedOp, Result, Timing, lease::EndsOnDrop, lock_key::bounded,
};

/// Order of leaderships: of two, the later one has the larger token.
///
/// A resource that a leader changes can refuse a token smaller than one it has seen. With Consul it
/// is the index of the acquisition, which grows even if the lock's key is deleted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Creates a token of this rank.
    pub fn new(rank: u64) -> Self {
        Self(rank)
    }

    /// Returns the rank.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Right to lead, while it lasts.
///
/// Clones are the same leadership. It ends by [`Leadership::resign`], by loss, or when the last
/// clone is dropped, which resigns in the background.
///
/// Call [`Leadership::check`] before each step that changes something, and stop long steps when
/// [`Leadership::ended`] is cancelled. Data in Consul's KV store is safe beyond that:
/// [`Leadership::commit`] makes Consul itself refuse the writes of a deposed leader.
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

/// Lock in Consul that backs a leadership.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    pub(crate) consul: Consul,
    pub(crate) key: String,
    pub(crate) session: SessionId,
    pub(crate) timing: Timing,
}

/// Time limit of a fenced write.
const WRITE: Duration = Duration::from_secs(10);

impl Leadership {
    /// Creates a leadership for an elector of one's own.
    ///
    /// `keep` runs in a task: it renews `lease`, ends it on loss, and returns once its token was
    /// cancelled, or the lease has ended, and everything is released. However it returns, the lease
    /// ends with it.
    ///
    /// `margin` is the time between the end of the lease and the moment at which another may lead.
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
        let (kept, keeping) = (EndsOnDrop(lease.clone()), keep(resigned.clone()));
        // Created before the task: it ends the lease even if the runtime drops the task unstarted.
        let keeper = tokio::spawn(async move {
            let _kept = kept;
            keeping.await;
        });
        let keeper = Mutex::new(Some(keeper));
        Self { inner: Arc::new(Inner { lease, token, margin, fence, resigned, keeper }) }
    }

    /// Checks that this process leads now, by its own clock. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] with the reason.
    pub fn check(&self) -> Result<()> {
        self.inner.lease.check().map_err(Error::Ended)
    }

    /// Checks like [`Leadership::check`], and reads the lock in Consul first if the last renewal is
    /// older than a quarter of the TTL: for a step that cannot be undone, such as an apply.
    ///
    /// An elector without Consul checks by its clock alone.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if leadership is over, also because another session holds the lock. A
    /// retryable error if Consul does not answer within the time limit of a renewal (an eighth of
    /// the TTL by default): then nothing is known, and the step must wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn confirm(&self) -> Result<()> {
        self.check()?;
        let Some(fence) = &self.inner.fence else { return Ok(()) };
        let timing = fence.timing;
        // A renewal is as good as a read, and a quarter of a TTL bounds how old it may be.
        if self.inner.lease.age(timing.lease) <= timing.ttl / 4 {
            return Ok(());
        }
        let reading = fence.consul.get(&fence.key, None, Duration::ZERO);
        let lock = tokio::select! {
            lock = bounded("confirm leadership", timing.timeout, reading) => lock?.value,
            () = self.ended().cancelled() => None,
        };
        // The lease may have ended while Consul was asked.
        self.check()?;
        if lock.and_then(|lock| lock.session).as_ref() != Some(&fence.session) {
            tracing::warn!(kv.key = fence.key, "another holds the lock of this leader");
            return Err(Error::Ended(self.inner.lease.end(Loss::Taken)));
        }
        Ok(())
    }

    /// Returns a token that is cancelled when leadership has ended.
    pub fn ended(&self) -> &CancellationToken {
        self.inner.lease.ended()
    }

    /// Returns the reason of its end, if it has ended.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.lease.loss()
    }

    /// Returns its place in the order of all leaderships.
    pub fn token(&self) -> FencingToken {
        self.inner.token
    }

    /// Returns the lease that it depends on.
    pub fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    /// Returns the least time between the lease's end and the moment at which another may lead: the
    /// time that a running step has to end.
    pub fn margin(&self) -> Duration {
        self.inner.margin
    }

    /// Returns the present rest of [`Leadership::margin`]. Zero if this process was suspended so
    /// long that another may lead already.
    pub fn margin_left(&self) -> Duration {
        self.inner.margin.saturating_sub(self.inner.lease.overdue())
    }

    /// Returns the rest of the time in which work may end by itself, the first three quarters of
    /// [`Leadership::margin`]; the last quarter is for ending it by force.
    pub fn wind_up_left(&self) -> Duration {
        (self.inner.margin / 4 * 3).saturating_sub(self.inner.lease.overdue())
    }

    /// Carries out operations on Consul's KV store in one transaction, unless this leader has been
    /// deposed; Consul checks that and writes in one step.
    ///
    /// Returns the results of `ops` in their order. Deletions and
    /// [`KvVerb::CheckNotExists`](consul_watch::types::KvVerb::CheckNotExists) have none,
    /// a read of a tree has many. Consul documents a limit of 64 operations in a
    /// transaction, and one of them is the check of the lock: give at most 63.
    ///
    /// This protects data in Consul. It does not protect what a step changes elsewhere: a Terraform
    /// run that is under way when leadership ends has to be ended, within [`Leadership::margin`].
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if leadership is over, which no retry can cure, or if it ended before
    /// Consul answered; then the operations may have taken effect. [`Error::RolledBack`] if Consul
    /// refused one of `ops`, such as a compare-and-set with a stale index: nothing was written, and
    /// leadership goes on. [`Error::Setting`] from an elector without Consul. Other errors of
    /// Consul may be retried as they state.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the operations may take effect after the future was dropped.
    pub async fn commit(&self, ops: Vec<KvOp>) -> Result<Vec<TxnResult>> {
        self.check()?;
        let fence = self.fence()?;
        // First, so that its failure and its result can be distinguished from the caller's by their index.
        let mut all = vec![KvOp::check_session(&fence.key, fence.session.clone())];
        all.extend_from_slice(&ops);
        let outcome = tokio::select! {
            outcome = bounded("write as leader", WRITE, fence.consul.transact(all)) => outcome?,
            // A write that is under way may still take effect, which the documentation says;
            // waiting for it longer would hold up the shutdown.
            () = self.ended().cancelled() => {
                return Err(Error::Ended(self.loss().unwrap_or(Loss::LeaseExpired)));
            }
        };
        let failures = match outcome {
            TxnOutcome::Committed(mut results) => {
                // The entry of the lock's key, which the check has read.
                results.drain(..results.len().min(1));
                return Ok(results);
            }
            TxnOutcome::RolledBack(failures) => failures,
        };
        if failures.iter().any(|failure| failure.op_index == 0) {
            tracing::warn!(
                kv.key = fence.key,
                reason = crate::consul::reasons(&failures),
                "Consul refused a write because another leads"
            );
            return Err(Error::Ended(self.inner.lease.end(Loss::Refused)));
        }
        let own = failures.into_iter().map(|failure| RefusedOp::new(&ops, failure));
        Err(Error::RolledBack { refused: own.collect() })
    }

    /// Returns the lock in Consul.
    pub(crate) fn fence(&self) -> Result<&Fence> {
        self.inner.fence.as_ref().ok_or(Error::Setting {
            setting: "elector",
            problem: "this leadership does not come from Consul, so Consul cannot fence its writes"
                .to_owned(),
        })
    }

    /// Resigns, and waits until lock and session are released, so that another can lead at once.
    /// For this process leadership has ended before anyone else can know.
    pub async fn resign(&self) {
        self.inner.give_up();
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // A task that panicked leaves everything to the session's TTL.
            drop(keeper.await);
        }
    }
}

impl Inner {
    /// Ends the leadership here at once; its task releases the lock.
    fn give_up(&self) {
        // The lease before the signal: nobody may see a leadership that is being given up pass its
        // check.
        self.lease.end(Loss::Resigned);
        self.resigned.cancel();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Guard that resigns when it is dropped, whoever else keeps a clone.
pub(crate) struct ResignsOnDrop(pub(crate) Leadership);

impl Drop for ResignsOnDrop {
    fn drop(&mut self) {
        self.0.inner.give_up();
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

#[cfg(test)]
mod tests {
    use consul_watch::SystemClock;

    use super::*;

    fn leadership<F>(keep: impl FnOnce(CancellationToken) -> F) -> Leadership
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let lease = Lease::new(Arc::new(SystemClock), Duration::from_hours(1));
        Leadership::start(lease, FencingToken::new(1), Duration::ZERO, keep)
    }

    #[tokio::test]
    async fn it_ends_with_what_keeps_it() {
        let returned = leadership(|_resigned| async {});
        returned.ended().cancelled().await;
        assert_eq!(returned.loss(), Some(Loss::Abandoned));
        let panicked = leadership(|resigned| async move {
            assert!(resigned.is_cancelled(), "the fault of this keeper");
        });
        panicked.ended().cancelled().await;
        assert!(panicked.check().is_err());
        panicked.resign().await;
        assert_eq!(panicked.loss(), Some(Loss::Abandoned), "the first reason stays");
    }

    #[test]
    fn it_ends_with_its_runtime() {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let leadership = runtime.block_on(async { leadership(|_resigned| std::future::pending()) });
        assert!(leadership.check().is_ok());
        drop(runtime);
        assert_eq!(leadership.loss(), Some(Loss::Abandoned));
        assert!(leadership.check().is_err() && leadership.ended().is_cancelled());
    }
}
