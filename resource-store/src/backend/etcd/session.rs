//! Transactions under the generation that counts, and how far etcd has come.

use std::sync::{
    Mutex, PoisonError, Weak,
    atomic::{AtomicI64, Ordering},
};

use super::{
    cluster::Cluster,
    follow::Following,
    layout::{Generation, Layout},
    pb::{Compare, KeyValue, RangeResponse, RequestOp, TxnRequest},
};
use crate::backend::{Consistency, Error, Result};

/// Limit of restarts of an operation because the store is being restored.
const RESTARTS: usize = 16;

/// State that the operations of one backend share.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) cluster: Cluster,
    pub(super) layout: Layout,
    pub(super) watch_buffer: usize,
    generation: Mutex<Option<Generation>>,
    /// The highest revision that this process has seen the effects of. An
    /// eventual read of less would go back in time.
    floor: AtomicI64,
    pub(super) following: Mutex<Weak<Following>>,
}

/// The result of a guarded transaction.
pub(super) struct Guarded {
    pub(super) generation: Generation,
    pub(super) revision: i64,
    pub(super) ranges: Vec<RangeResponse>,
}

impl Session {
    pub(super) fn new(cluster: Cluster, layout: Layout, watch_buffer: usize) -> Self {
        Self {
            cluster,
            layout,
            watch_buffer,
            generation: Mutex::new(None),
            floor: AtomicI64::new(0),
            following: Mutex::new(Weak::new()),
        }
    }

    /// Notes that this process saw the effects of a revision.
    pub(super) fn seen(&self, revision: i64) {
        self.floor.fetch_max(revision, Ordering::SeqCst);
    }

    pub(super) fn floor(&self) -> i64 {
        self.floor.load(Ordering::SeqCst)
    }

    /// The condition that a generation still counts.
    pub(super) fn guard(&self, generation: &Generation) -> Compare {
        Compare::value_is(self.layout.current(), generation.as_str().as_bytes().to_vec())
    }

    /// Asks what the generation is, in the branch for when it is another.
    pub(super) fn ask_generation(&self) -> RequestOp {
        RequestOp::get(self.layout.current())
    }

    /// The generation that counts, as far as is known here; the first one is
    /// made when there is none.
    pub(super) async fn generation(&self) -> Result<Generation> {
        let known = self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(generation) => Ok(generation),
            None => self.find_generation().await,
        }
    }

    async fn find_generation(&self) -> Result<Generation> {
        let first = Generation::random();
        let request = TxnRequest {
            compare: vec![Compare::changed_at(self.layout.current(), 0)],
            success: vec![RequestOp::put(
                self.layout.current(),
                first.as_str().as_bytes().to_vec(),
            )],
            failure: vec![self.ask_generation()],
        };
        // Asking first, because most often there is one.
        let ask = TxnRequest::reads(vec![self.ask_generation()]);
        for request in [ask, request] {
            let operation = "connecting to etcd";
            let answer = self.cluster.txn(&request).await;
            let answer = answer.map_err(|f| f.repeatable().into_error(operation))?;
            self.seen(answer.response.revision());
            if !request.compare.is_empty() && answer.response.succeeded {
                self.learn(Some(&first));
                return Ok(first);
            }
            if let Some(stored) = answer.response.into_range().kvs.first() {
                let generation = self.readable(stored)?;
                self.learn(Some(&generation));
                return Ok(generation);
            }
        }
        Err(Error::Inconsistent { reason: "etcd was emptied just now".to_owned() })
    }

    fn readable(&self, stored: &KeyValue) -> Result<Generation> {
        Generation::from_stored(&stored.value).ok_or_else(|| {
            Error::failed(
                "connecting to etcd",
                format!(
                    "the key {} is not one of a resource store: choose another prefix",
                    self.layout.current().escape_ascii()
                ),
            )
        })
    }

    /// Takes note of the generation that counts; watches of another one end.
    pub(super) fn learn(&self, generation: Option<&Generation>) {
        let mut known = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == generation {
            return;
        }
        *known = generation.cloned();
        drop(known);
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(following) = following.filter(|f| Some(f.history()) != generation) {
            following.close();
        }
    }

    /// Takes note of what a guarded transaction gave that failed: the
    /// generation that counts.
    pub(super) fn learn_from(&self, answer: &RangeResponse) -> Result<Option<Generation>> {
        let generation = answer.kvs.first().map(|stored| self.readable(stored)).transpose()?;
        self.learn(generation.as_ref());
        Ok(generation)
    }

    /// Reads under the generation that counts.
    ///
    /// An eventual read asks one member for what it knows. If that is less than
    /// this process has seen, it becomes a strong one.
    pub(super) async fn read(
        &self,
        consistency: Consistency,
        operation: &'static str,
        reads: impl Fn(&Generation) -> Vec<RequestOp> + Send + Sync,
    ) -> Result<Guarded> {
        let mut consistency = consistency;
        for _ in 0..RESTARTS {
            let generation = self.generation().await?;
            let floor = self.floor();
            let request = TxnRequest {
                compare: vec![self.guard(&generation)],
                success: reads(&generation),
                failure: vec![self.ask_generation()],
            };
            let request = match consistency {
                Consistency::Eventual => request.serializable(),
                Consistency::Strong => request,
            };
            let answer = self.cluster.txn(&request).await.map_err(|f| f.into_error(operation))?;
            let revision = answer.response.revision();
            if revision < floor {
                if consistency == Consistency::Strong {
                    self.went_back(floor, revision);
                }
                consistency = Consistency::Strong;
                continue;
            }
            self.seen(revision);
            if answer.response.succeeded {
                let ranges = answer.response.into_ranges().collect();
                return Ok(Guarded { generation, revision, ranges });
            }
            self.learn_from(&answer.response.into_range())?;
        }
        Err(restored_too_often())
    }

    /// Etcd knows less than it did: it was set up again, or from a backup. What
    /// was known of it counts no more.
    pub(super) fn went_back(&self, from: i64, to: i64) {
        tracing::warn!(from, to, "etcd went back in time: was it restored from a backup?");
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(following) = following {
            following.close();
        }
        // If it fails, someone saw newer effects meanwhile.
        let _lowered =
            self.floor.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.learn(None);
    }
}

pub(super) fn restored_too_often() -> Error {
    Error::Inconsistent { reason: "the store is restored again and again".to_owned() }
}
