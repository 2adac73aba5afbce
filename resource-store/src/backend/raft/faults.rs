//! Faults that tests ask for.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::types::NodeId;
use crate::backend::store::sync::lock;

/// Faults of the network between nodes of one process, and of a node itself,
/// for tests. Clones share the network; the lag is of one node.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    cuts: Option<Arc<Mutex<HashSet<(NodeId, NodeId)>>>>,
    lag: Duration,
}

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, reason = "faults are made by tests only")
)]
impl Faults {
    /// A network that can be cut.
    pub fn new() -> Self {
        Self { cuts: Some(Arc::default()), lag: Duration::ZERO }
    }

    /// The same network, and a node that applies entries late: by a random time
    /// up to `lag`.
    #[must_use]
    pub fn with_lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
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
    /// Whether a call gets through.
    pub(crate) fn check(&self, from: NodeId, to: NodeId) -> io::Result<()> {
        match &self.cuts {
            Some(cuts) if lock(cuts).contains(&(from, to)) => {
                Err(io::Error::other("cut off by a test"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) async fn lag(&self) {
        if !self.lag.is_zero() {
            tokio::time::sleep(self.lag.mul_f64(fastrand::f64())).await;
        }
    }
}
