//! One round for many reads.
//!
//! A linearizable read needs a round of messages that begins after the read
//! did. Reads that come while a round is under way share the next one.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};

use crate::backend::{Error, Result, raft::types::reason_of, store::sync::lock};

type Round = Shared<BoxFuture<'static, Result<u64, String>>>;

/// Shares rounds among those who wait.
#[derive(Debug, Default)]
pub(crate) struct ReadBatch {
    rounds: Arc<Mutex<Rounds>>,
}

#[derive(Debug, Default)]
struct Rounds {
    /// The round that has begun.
    running: Option<Round>,
    /// The round that begins when that one is over.
    next: Option<Round>,
}

impl ReadBatch {
    /// Gives what a round gave that began after this was called; `round` makes
    /// one.
    ///
    /// # Cancel safety
    ///
    /// Rounds go on as long as anyone waits for them.
    pub(crate) async fn pass<F>(&self, round: impl FnOnce() -> F) -> Result<u64>
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        let mine = self.join(round);
        mine.await.map_err(|reason| Error::Inconsistent { reason })
    }

    fn join<F>(&self, round: impl FnOnce() -> F) -> Round
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        let mut rounds = lock(&self.rounds);
        if let Some(next) = &rounds.next {
            return next.clone();
        }
        // Whoever waits for the next round drives the one before it, too, which
        // may have been left by those who began it.
        let before = rounds.running.clone();
        let handle = Arc::clone(&self.rounds);
        let work = round();
        let next = async move {
            if let Some(before) = before {
                drop(before.await);
            }
            {
                let mut rounds = lock(&handle);
                rounds.running = rounds.next.take();
            }
            work.await.map_err(reason_of)
        };
        let next = next.boxed().shared();
        rounds.next = Some(next.clone());
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Counts rounds; each needs a permit to end.
    #[derive(Default)]
    struct Source {
        begun: AtomicU64,
        permits: Option<Semaphore>,
    }

    impl Source {
        async fn round(self: Arc<Self>) -> Result<u64> {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            if let Some(permits) = &self.permits {
                permits.acquire().await.unwrap().forget();
            }
            Ok(number)
        }
    }

    #[tokio::test]
    async fn reads_share_the_round_that_begins_after_them() {
        let source = Arc::new(Source { permits: Some(Semaphore::new(0)), ..Source::default() });
        let batch = Arc::new(ReadBatch::default());
        let read = || {
            let (source, batch) = (Arc::clone(&source), Arc::clone(&batch));
            tokio::spawn(async move { batch.pass(|| source.round()).await.unwrap() })
        };
        let first = read();
        while source.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let later: Vec<_> = (0..10).map(|_| read()).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(source.begun.load(Ordering::SeqCst), 1, "the others wait");
        source.permits.as_ref().unwrap().add_permits(2);
        assert_eq!(first.await.unwrap(), 1);
        for read in later {
            assert_eq!(read.await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn rounds_that_were_left_do_not_hold_others_up() {
        let source = Arc::new(Source { permits: Some(Semaphore::new(0)), ..Source::default() });
        let batch = ReadBatch::default();
        let left = batch.pass(|| Arc::clone(&source).round()).now_or_never();
        assert!(left.is_none());
        let left = batch.pass(|| Arc::clone(&source).round()).now_or_never();
        assert!(left.is_none());
        source.permits.as_ref().unwrap().add_permits(3);
        assert_eq!(batch.pass(|| Arc::clone(&source).round()).await.unwrap(), 2);
        assert_eq!(batch.pass(|| Arc::clone(&source).round()).await.unwrap(), 3);
    }
}
