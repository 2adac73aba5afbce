use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::time::timeout;

use crate::{Leader, Leadership, Result, leadership::GivesUp};

/// Decides among several processes which one leads.
///
/// At no moment do two of them hold a [`Leadership`] whose
/// [`check`](Leadership::check) passes, whatever becomes of network, processes
/// and clocks that run at half speed or more, unless an operator interferes in a
/// way that the implementation names; later leaderships have larger tokens. When a leader resigns, another candidate leads at once; when it dies
/// or is cut off, within a bound that the implementation states.
#[async_trait]
pub trait Elector: fmt::Debug + Send + Sync + 'static {
    /// Waits until this process leads. What may pass is tried again for ever.
    ///
    /// # Errors
    ///
    /// What no retry cures: a missing permission, say.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the candidacy up, in the background.
    async fn campaign(&self) -> Result<Leadership>;

    /// Who leads, as far as this process has seen while it was a candidate or
    /// leader; `None` between leaders.
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

/// What every [`Elector`] can do.
pub trait ElectorExt: Elector {
    /// Does `work` while this process leads, anew at each leadership, until one
    /// comes to its end while still leading; its result is returned, and
    /// leadership given up.
    ///
    /// When leadership is lost, the work has what is left of
    /// [`Leadership::margin`] to end by itself; then it is dropped. After a
    /// suspend that was longer, nothing is left.
    ///
    /// # Errors
    ///
    /// As [`Elector::campaign`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work, and resigns in the background: also
    /// when something that the work has started keeps the [`Leadership`]. The
    /// same holds when the work panics.
    fn run<T, W, F>(&self, mut work: W) -> impl Future<Output = Result<T>> + Send
    where
        W: FnMut(Leadership) -> F + Send,
        F: Future<Output = T> + Send,
        T: Send,
    {
        async move {
            loop {
                let leadership = self.campaign().await?;
                let _given_up = GivesUp(leadership.clone());
                let ended = leadership.ended().clone();
                let done = {
                    let working = work(leadership.clone());
                    tokio::pin!(working);
                    tokio::select! {
                        biased;
                        () = ended.cancelled() => {
                            let left = leadership.margin_left();
                            if !left.is_zero() {
                                // What it comes to now counts for nothing.
                                drop(timeout(left, &mut working).await);
                            }
                            None
                        }
                        done = &mut working => Some(done),
                    }
                };
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
