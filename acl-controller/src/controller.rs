//! The loop that runs a reconciler: regular passes, slower checks, and longer waits after outages.

use std::{sync::Arc, time::Duration};

use consul_watch::{Backoff, Clock, Jitter, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::{Reconciler, Report, Result, Writer, telemetry};

/// Intervals of a [`Controller`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ControllerOptions {
    /// Time from the end of one pass to the next. Default 10 s.
    pub interval: Duration,
    /// Time between two of the slower checks, which also read what lists do not show. Default 10
    /// min.
    pub check_interval: Duration,
    /// Longest wait after consecutive passes that could not list anything. Default 5 min.
    pub longest_wait: Duration,
    /// `true` only to report changes. Default `false`.
    pub dry_run: bool,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            check_interval: Duration::from_mins(10),
            longest_wait: Duration::from_mins(5),
            dry_run: false,
        }
    }
}

/// Runs a [`Reconciler`]: in regular passes, once, or for the last time.
///
/// Run it under a leader election if several instances may be started: when `stop` is cancelled it
/// ends at once, wherever it is. Two that run at the same time do no harm to each other.
#[derive(Debug)]
pub struct Controller {
    reconciler: Arc<dyn Reconciler>,
    options: ControllerOptions,
    clock: Arc<dyn Clock>,
}

impl Controller {
    /// Creates a controller, which does nothing yet.
    pub fn new(reconciler: impl Reconciler, options: ControllerOptions) -> Self {
        Self { reconciler: Arc::new(reconciler), options, clock: Arc::new(SystemClock) }
    }

    /// Returns the controller with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Prepares, then makes passes until `stop` is cancelled. The first pass follows after one
    /// interval, as upstream's does.
    ///
    /// # Errors
    ///
    /// The errors of the preparation. A failing pass is logged, counted and repeated. After passes
    /// that could not list anything, the wait grows up to [`ControllerOptions::longest_wait`], and
    /// is as long as the other side asks for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has the effect of `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            result = self.work() => result,
        }
    }

    async fn work(&self) -> Result<()> {
        let writer = self.writer();
        self.reconciler.prepare(&writer).await.inspect_err(telemetry::failed)?;
        let mut checked = self.clock.monotonic();
        let mut delays = Backoff::default()
            .with_initial(self.options.interval)
            .with_cap(self.options.longest_wait.max(self.options.interval))
            .with_jitter(Jitter::Extra(0.2));
        let mut wait = self.options.interval;
        loop {
            self.clock.sleep(wait).await;
            let now = self.clock.monotonic();
            let check = now.saturating_sub(checked) >= self.options.check_interval;
            wait = match self.pass(check).await {
                Ok(report) => {
                    // Only a pass that ended well counts as a check, so that a failed one is
                    // repeated at the next pass.
                    delays.reset();
                    if check {
                        checked = now;
                    }
                    // A partial pass is no outage, but its throttled calls may have named a time to
                    // wait.
                    report.into_error().and_then(|error| error.retry_after()).unwrap_or_default()
                }
                Err(error) => delays.next_delay().max(error.retry_after().unwrap_or_default()),
            };
            wait = wait.max(self.options.interval).min(self.longest_wait());
        }
    }

    /// Returns the upper limit of any wait, whatever the other side asks for, with room for jitter.
    fn longest_wait(&self) -> Duration {
        self.options.longest_wait.max(self.options.interval).saturating_mul(2)
    }

    fn writer(&self) -> Writer {
        if self.options.dry_run { Writer::dry_run() } else { Writer::new() }
    }

    /// Makes one pass, logs its errors and counts them.
    async fn pass(&self, check: bool) -> Result<Report> {
        let writer = self.writer();
        let started = self.clock.monotonic();
        let outcome = self.reconciler.pass(&writer, check).await;
        self.finish(started, writer, outcome)
    }

    fn finish(&self, started: Duration, writer: Writer, outcome: Result<Report>) -> Result<Report> {
        let took = self.clock.monotonic().saturating_sub(started);
        let mut changes = writer.into_changes();
        // Work runs concurrently; sorted, two equal passes report alike.
        changes.sort();
        let outcome = outcome.map(|mut report| {
            report.changes = changes;
            report
        });
        let at = self.clock.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        telemetry::passed(&outcome, took, at);
        match &outcome {
            Ok(report) => {
                for error in &report.errors {
                    tracing::error!(
                        error = consul_watch::error_chain(error),
                        "error reconciling resource"
                    );
                }
                tracing::debug!(
                    tasks = report.tasks,
                    resources = report.resources,
                    changes = report.changes.len(),
                    postponed = report.postponed,
                    "reconciled"
                );
            }
            Err(error) => {
                tracing::error!(error = consul_watch::error_chain(error), "error during reconcile");
            }
        }
        outcome
    }

    /// Prepares, and makes one pass that checks everything.
    ///
    /// # Errors
    ///
    /// The errors of the preparation and of the listing; errors of single resources are in the
    /// report.
    pub async fn once(&self) -> Result<Report> {
        let writer = self.writer();
        let started = self.clock.monotonic();
        let outcome = match self.reconciler.prepare(&writer).await {
            Ok(()) => self.reconciler.pass(&writer, true).await,
            Err(error) => Err(error),
        };
        self.finish(started, writer, outcome)
    }

    /// Removes everything that belongs to the cluster, when it is taken down; see
    /// [`Reconciler::cleanup`].
    ///
    /// # Errors
    ///
    /// The errors of the listing; [`Error::Input`](crate::Error::Input) while tasks run, unless
    /// `force` is given.
    pub async fn cleanup(&self, force: bool) -> Result<Report> {
        let writer = self.writer();
        let started = self.clock.monotonic();
        let outcome = self.reconciler.cleanup(&writer, force).await;
        self.finish(started, writer, outcome)
    }
}
