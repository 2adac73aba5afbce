//! Faults that tests ask for.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::backend::{raft::types::NodeId, store::sync::lock};

/// Pairs of nodes of which the first cannot call the second.
type Cuts = Mutex<HashSet<(NodeId, NodeId)>>;

/// Faults of the network between nodes of one process, and of a node itself,
/// for tests. Clones share the network; all else is of one node.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    cuts: Option<Arc<Cuts>>,
    lag: Duration,
    latency: Duration,
    disk: Option<HeldDisk>,
    commits: HeldCommits,
}

/// The disk of a node's log, which a test can hang. A clone is the same disk.
#[derive(Debug, Clone, Default)]
pub struct HeldDisk {
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, reason = "faults are made by tests only")
)]
impl HeldDisk {
    /// Lets no write end from now on.
    pub fn hang(&self) {
        *lock(&self.hangs.0) = true;
    }

    /// Lets all writes end that wait.
    pub fn release(&self) {
        *lock(&self.hangs.0) = false;
        self.hangs.1.notify_all();
    }

    /// Blocks the thread as long as the disk hangs.
    fn pass(&self) {
        let hangs = self.hangs.1.wait_while(lock(&self.hangs.0), |hangs| *hangs);
        drop(hangs.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A node's note of what is committed, which a test can hold up. A clone is the same note.
#[derive(Debug, Clone, Default)]
pub struct HeldCommits {
    held: watch::Sender<bool>,
}

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, reason = "faults are made by tests only")
)]
impl HeldCommits {
    /// Lets the node note nothing from now on, nor do what comes after that.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    async fn pass(&self) {
        // The sender lives as long as this.
        drop(self.held.subscribe().wait_for(|held| !held).await);
    }
}

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, reason = "faults are made by tests only")
)]
impl Faults {
    /// A network that can be cut.
    pub fn new() -> Self {
        Self { cuts: Some(Arc::default()), ..Self::default() }
    }

    /// The same network, and a node that applies entries late: by a random time
    /// up to `lag`.
    #[must_use]
    pub fn with_lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
        self
    }

    /// The same network, and a node that gets entries and signs of life of its
    /// leader so much later.
    #[must_use]
    pub fn with_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// The same network, and a node whose log is on a disk that can hang.
    #[must_use]
    pub fn with_disk(mut self, disk: HeldDisk) -> Self {
        self.disk = Some(disk);
        self
    }

    /// The same network, and a node that can be held up between telling others what is
    /// committed and noting it itself.
    #[must_use]
    pub fn with_commits(mut self, commits: HeldCommits) -> Self {
        self.commits = commits;
        self
    }

    /// Lets no call of `from` reach `to`, nor any part of one under way go on.
    pub fn cut(&self, from: u64, to: u64) {
        if let Some(cuts) = &self.cuts {
            lock(cuts).insert((from, to));
        }
    }

    /// Cuts one node off from the others, both ways.
    pub fn isolate(&self, node: u64, others: &[u64]) {
        for other in others {
            self.cut(node, *other);
            self.cut(*other, node);
        }
    }

    /// Makes the network whole.
    pub fn heal(&self) {
        if let Some(cuts) = &self.cuts {
            lock(cuts).clear();
        }
    }
}

impl Faults {
    /// Fails if a call from one node does not get through to the other.
    pub(crate) fn check(&self, from: NodeId, to: NodeId) -> io::Result<()> {
        match &self.cuts {
            Some(cuts) if lock(cuts).contains(&(from, to)) => {
                Err(io::Error::other("cut off by a test"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Waits as long as a message of the leader takes.
    pub(crate) async fn latency(&self) {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
    }

    /// Blocks as long as the disk of the log hangs.
    pub(crate) fn disk(&self) {
        if let Some(disk) = &self.disk {
            disk.pass();
        }
    }

    /// Waits as long as the note of what is committed is held up.
    pub(crate) async fn commit(&self) {
        self.commits.pass().await;
    }

    pub(crate) async fn lag(&self) {
        if !self.lag.is_zero() {
            tokio::time::sleep(self.lag.mul_f64(fastrand::f64())).await;
        }
    }
}
