//! Keeps a task running while a lease is held.

use std::{future::Future, time::Duration};

use futures::{Stream, StreamExt as _, stream::BoxStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BoxError, backoff::exponential};

/// A run that lasts longer than this was no failed start.
const LONG_RUN: Duration = Duration::from_secs(2);
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_mins(1);

/// The state of the lease, as far as it was heard.
struct Held {
    changes: BoxStream<'static, bool>,
    now: bool,
    ended: bool,
}

impl Held {
    /// Waits for the lease to be `wanted`; forever if it ends as something else.
    async fn wait_for(&mut self, wanted: bool) {
        while self.now != wanted {
            if self.ended {
                // A lease without news stays what it was; `stop` ends the loop.
                return std::future::pending().await;
            }
            match self.changes.next().await {
                Some(held) => self.now = held,
                None => self.ended = true,
            }
        }
    }
}

/// Runs what `start` makes while the lease is held, until `stop`. A task that
/// ends, however, is started again: at once if it ran for long, else after a
/// delay that doubles. A task that has to end is cancelled, and waited for.
pub(super) async fn supervise<F>(
    name: &str,
    lease: impl Stream<Item = bool> + Send + 'static,
    stop: CancellationToken,
    start: impl Fn(CancellationToken) -> F,
) where
    F: Future<Output = Result<(), BoxError>>,
{
    let mut held = Held { changes: lease.boxed(), now: false, ended: false };
    let mut failures = 0;
    loop {
        tokio::select! {
            () = held.wait_for(true) => {}
            () = stop.cancelled() => return,
        }
        // A child: the end of the lease cancels this task alone, a stop all of them.
        let cancel = stop.child_token();
        let started = Instant::now();
        let mut task = std::pin::pin!(start(cancel.clone()));
        let result = tokio::select! {
            result = &mut task => result,
            () = held.wait_for(false) => {
                cancel.cancel();
                // It is waited for: two runs at a time would break the promise of a singleton.
                log_end(name, &task.await);
                failures = 0;
                continue;
            }
            () = stop.cancelled() => return log_end(name, &task.await),
        };
        log_end(name, &result);
        // It had worked, so the next failure is a new one and not the same again.
        if started.elapsed() > LONG_RUN {
            failures = 0;
            continue;
        }
        let delay = delay(failures, fastrand::f64());
        failures = failures.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            // Another process had it meanwhile, so what failed here may have been put right.
            () = held.wait_for(false) => failures = 0,
            () = stop.cancelled() => return,
        }
    }
}

fn log_end(name: &str, result: &Result<(), BoxError>) {
    if let Err(error) = result {
        tracing::warn!(controller = name, error = %error, "controller ended");
    }
}

/// The first delay is exact; later ones have up to a quarter added.
fn delay(failures: u32, random: f64) -> Duration {
    let base = exponential(FIRST_DELAY, LONGEST_DELAY, failures);
    if failures == 0 { base } else { base + base.mul_f64(random.clamp(0.0, 1.0) / 4.0) }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::lease::{Leadership, Lease as _};

    #[test]
    fn delays_start_at_half_a_second_and_end_at_a_minute() {
        let millis: Vec<_> = (0..4).map(|n| delay(n, 0.0).as_millis()).collect();
        assert_eq!(millis, [500, 1000, 2000, 4000]);
        assert_eq!(delay(100, 1.0).as_secs(), 75);
        assert_eq!(delay(0, 1.0).as_millis(), 500);
    }

    /// Counts starts; ends when cancelled, or fails when told to.
    #[derive(Default)]
    struct Task {
        starts: AtomicU32,
        running: AtomicU32,
        fail: tokio::sync::Notify,
    }

    impl Task {
        async fn run(self: Arc<Self>, cancel: CancellationToken) -> Result<(), BoxError> {
            self.starts.fetch_add(1, Ordering::SeqCst);
            self.running.fetch_add(1, Ordering::SeqCst);
            let failed = tokio::select! {
                () = cancel.cancelled() => false,
                () = self.fail.notified() => true,
            };
            self.running.fetch_sub(1, Ordering::SeqCst);
            if failed { Err("told to fail".into()) } else { Ok(()) }
        }

        fn state(&self) -> (u32, u32) {
            (self.starts.load(Ordering::SeqCst), self.running.load(Ordering::SeqCst))
        }
    }

    /// Spec: RS81
    #[tokio::test(start_paused = true)]
    async fn a_task_runs_while_the_lease_is_held() {
        let (lease, task, stop) =
            (Leadership::default(), Arc::new(Task::default()), CancellationToken::new());
        let supervisor = tokio::spawn({
            let (changes, task, stop) = (lease.held(), Arc::clone(&task), stop.clone());
            async move { supervise("test", changes, stop, |cancel| Arc::clone(&task).run(cancel)).await }
        });
        let settle = || tokio::time::sleep(Duration::from_millis(400));
        settle().await;
        assert_eq!(task.state(), (0, 0), "no lease");
        lease.set(true);
        settle().await;
        assert_eq!(task.state(), (1, 1));
        lease.set(false);
        settle().await;
        assert_eq!(task.state(), (1, 0));
        lease.set(true);
        settle().await;
        assert_eq!(task.state(), (2, 1));
        task.fail.notify_one();
        tokio::time::sleep(Duration::from_millis(1900)).await;
        assert_eq!(task.state(), (3, 1), "restarted within two seconds");
        stop.cancel();
        supervisor.await.unwrap();
        assert_eq!(task.state(), (3, 0));
    }
}
