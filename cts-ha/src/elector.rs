//! The seam of elections, and the loop that runs work while leading.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::time::timeout;

use crate::{Leader, Leadership, Result, leadership::ResignsOnDrop};

/// Election of one leader among several processes.
///
/// At no moment do two of them hold a [`Leadership`] whose [`check`](Leadership::check) passes,
/// whatever becomes of network, processes and clocks that run at half speed or more, unless an
/// operator interferes in a way that the implementation names. Later leaderships have larger
/// tokens.
///
/// When a leader resigns, another candidate leads at once; when it dies or is cut off, within a
/// bound that the implementation states.
#[async_trait]
pub trait Elector: fmt::Debug + Send + Sync + 'static {
    /// Waits until this process leads. Temporary failures are retried for ever.
    ///
    /// # Errors
    ///
    /// Failures that no retry can cure, such as a missing permission.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the candidacy, in the background.
    async fn campaign(&self) -> Result<Leadership>;

    /// Returns the leader that this process last saw while it was a candidate or leader; `None`
    /// between leaders.
    fn leader(&self) -> Option<Leader>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Elector + ?Sized> Elector for Arc<T> {
    async fn campaign(&self) -> Result<Leadership> {
        (**self).campaign().await
    }

    fn leader(&self) -> Option<Leader> {
        (**self).leader()
    }
}

/// Operations of every [`Elector`].
pub trait ElectorExt: Elector {
    /// Runs `work` while this process leads, again for each leadership, until it completes while
    /// still leading. Returns its result and resigns.
    ///
    /// When leadership is lost, the work may use what is left of [`Leadership::margin`] to end by
    /// itself; then it is dropped. After a suspend that was longer, nothing is left.
    ///
    /// # Errors
    ///
    /// The errors of [`Elector::campaign`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and resigns in the background, even if something that the
    /// work started keeps the [`Leadership`]. The same holds if the work panics.
    fn run<T, W, F>(&self, mut work: W) -> impl Future<Output = Result<T>> + Send
    where
        W: FnMut(Leadership) -> F + Send,
        F: Future<Output = T> + Send,
        T: Send,
    {
        async move {
            loop {
                let leadership = self.campaign().await?;
                // Also resigns if the work panics or this future is dropped, while a clone of the
                // leadership lives on.
                let _given_up = ResignsOnDrop(leadership.clone());
                let ended = leadership.ended().clone();
                let done = {
                    let working = work(leadership.clone());
                    tokio::pin!(working);
                    tokio::select! {
                        // The end first: work that completes at the moment of the loss must not
                        // count.
                        biased;
                        () = ended.cancelled() => {
                            let left = leadership.margin_left();
                            if !left.is_zero() {
                                // Its result counts for nothing now.
                                drop(timeout(left, &mut working).await);
                            }
                            None
                        }
                        done = &mut working => Some(done),
                    }
                };
                // Checked before the resignation, which would end the leadership itself.
                let still_led = leadership.check().is_ok();
                leadership.resign().await;
                if let Some(done) = done.filter(|_| still_led) {
                    return Ok(done);
                }
            }
        }
    }
}

impl<T: Elector + ?Sized> ElectorExt for T {}
