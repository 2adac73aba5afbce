use std::{sync::Arc, time::Duration};

use consul_watch::{Backoff, Clock, Jitter, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::{Reconciler, Report, Result, Writer, telemetry};

/// When a [`Controller`] works.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ControllerOptions {
    /// From the end of one pass to the next. Default 10 s.
    pub interval: Duration,
    /// From one slower check, which also looks at what lists do not show, to the next. Default
    /// 10 min.
    pub check_interval: Duration,
    /// The longest wait after passes in a row that could not even list. Default 5 min.
    pub longest_wait: Duration,
    /// Whether changes are only reported. Default false.
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

/// Lets a [`Reconciler`] work in regular passes, once, or for the last time.
///
/// Run it inside whatever elects a leader, if several may be started: when its `stop` is cancelled
/// it ends at once, wherever it is. Two that run at the same time do no harm to each other.
#[derive(Debug)]
pub struct Controller {
    reconciler: Arc<dyn Reconciler>,
    options: ControllerOptions,
    clock: Arc<dyn Clock>,
}

impl Controller {
    /// Does nothing yet.
    pub fn new(reconciler: impl Reconciler, options: ControllerOptions) -> Self {
        Self { reconciler: Arc::new(reconciler), options, clock: Arc::new(SystemClock) }
    }

    /// This controller with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Prepares, then makes passes until `stop` is cancelled. The first pass comes after one
    /// interval, as upstream's.
    ///
    /// # Errors
    ///
    /// Those of the preparation: a failing pass is logged, counted and made again. After passes
    /// that could not list anything, the wait grows up to [`ControllerOptions::longest_wait`], and
    /// is as long as the other side asks for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does the same as `stop`.
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
                    delays.reset();
                    if check {
                        checked = now;
                    }
                    report.into_error().and_then(|error| error.retry_after()).unwrap_or_default()
                }
                Err(error) => delays.next_delay().max(error.retry_after().unwrap_or_default()),
            };
            wait = wait.max(self.options.interval).min(self.longest_wait());
        }
    }

    /// However long the other side asks to wait, and with jitter.
    fn longest_wait(&self) -> Duration {
        self.options.longest_wait.max(self.options.interval).saturating_mul(2)
    }

    fn writer(&self) -> Writer {
        if self.options.dry_run { Writer::dry_run() } else { Writer::new() }
    }

    /// Makes one pass, logs what failed and counts it.
    async fn pass(&self, check: bool) -> Result<Report> {
        let writer = self.writer();
        let started = self.clock.monotonic();
        let outcome = self.reconciler.pass(&writer, check).await;
        self.finish(started, writer, outcome)
    }

    fn finish(&self, started: Duration, writer: Writer, outcome: Result<Report>) -> Result<Report> {
        let took = self.clock.monotonic().saturating_sub(started);
        let mut changes = writer.into_changes();
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

    /// Prepares and makes one pass that checks everything; ends at once.
    ///
    /// # Errors
    ///
    /// Those of the preparation and of the listing; what failed for single resources is in the
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

    /// Removes everything that belongs to the cluster, which is taken down: see
    /// [`Reconciler::cleanup`].
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once); [`Error::Input`](crate::Error::Input) while tasks run, unless
    /// `force` is given.
    pub async fn cleanup(&self, force: bool) -> Result<Report> {
        let writer = self.writer();
        let started = self.clock.monotonic();
        let outcome = self.reconciler.cleanup(&writer, force).await;
        self.finish(started, writer, outcome)
    }
}
