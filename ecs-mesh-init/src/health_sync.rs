//! Copies the ECS health of containers to Consul, and takes the task out of the mesh at its end.

mod logout;
mod status;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use consul_watch::{Backoff, Jitter, error_chain, types::HealthCheck};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    config::Generation,
    metadata::{ContainerHealth, Task, TaskMetadata},
    registration::{self, Registrar, TaskPlan},
};

pub use logout::Logout;
pub use status::{DATAPLANE, dataplane_status, health_status};

const UNHEALTHY: &str = "UNHEALTHY";
/// Time for which Consul may refuse the checks at the start.
///
/// Not every server knows a new token at once, and one that was asked too early caches the refusal
/// for 30 s.
const REFUSAL_LIMIT: Duration = Duration::from_mins(1);

/// Shortest time between the write that makes all checks critical and deregistration.
///
/// Source: measured on consul-ecs 0.10, which reads the proxy's state a second later.
const LEAST_CRITICAL: Duration = Duration::from_secs(1);

/// A run of health-sync.
///
/// A status is written when it differs from the last one written. In the current generation all
/// changes of one tick are one write, and an unhealthy proxy or container makes the proxy's check
/// critical.
///
/// Deviation: in the early generation upstream writes the check of a missing container every
/// second; here it is written once, like any other.
///
/// Source: consul-ecs 0.10 and 0.6 `subcommand/health-sync`.
#[derive(Debug)]
#[non_exhaustive]
pub struct HealthSync {
    /// Generation whose behaviour applies.
    pub generation: Generation,
    /// Containers whose health is copied.
    pub containers: Vec<String>,
    /// Services that are registered for the task.
    pub plan: TaskPlan,
    /// The task's metadata.
    pub metadata: Arc<dyn TaskMetadata>,
    /// Service registry that checks are written to.
    pub registrar: Arc<dyn Registrar>,
    /// Logout of the task's token; `None` when it did not log in.
    pub logout: Option<Logout>,
    /// Time between two reads of the metadata. Default 1 s.
    pub period: Duration,
}

/// Change of health that is to be written.
struct Change {
    /// Container whose last written status it replaces.
    key: String,
    health: ContainerHealth,
    checks: Vec<HealthCheck>,
}

impl HealthSync {
    /// Creates a run with upstream's period and without a logout.
    pub fn new(
        generation: Generation,
        containers: Vec<String>,
        plan: TaskPlan,
        metadata: Arc<dyn TaskMetadata>,
        registrar: Arc<dyn Registrar>,
    ) -> Self {
        let period = Duration::from_secs(1);
        Self { generation, containers, plan, metadata, registrar, logout: None, period }
    }

    /// Copies health until `stop` is cancelled, then makes all checks critical. In the current
    /// generation it then waits for the proxy to stop and deregisters the services. At last it logs
    /// out.
    ///
    /// Deviation: upstream gives up when the checks cannot be read at the start; here the read is
    /// retried, for ever while no server answers, and for a minute while Consul refuses.
    ///
    /// # Errors
    ///
    /// At the start [`Error::Consul`] if Consul still refuses the checks after a minute, and
    /// [`Error::Input`] if the sidecar does not have exactly one. At the end [`Error::Other`] with
    /// everything that failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends it at once and leaves checks, services and token as they are;
    /// cancel `stop` to leave the mesh.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let checks = tokio::select! {
            biased;
            // The checks were registered critical, so there is nothing to write.
            () = stop.cancelled() => Ok(BTreeMap::new()),
            checks = self.checks_at_start() => checks,
        };
        let checks = match checks {
            Ok(checks) => checks,
            // health-sync is the last holder of the token: nobody else would log it out.
            Err(error) => {
                self.log_out().await.iter().for_each(|error| {
                    tracing::warn!(
                        error = error as &dyn std::error::Error,
                        "the token was not given back"
                    );
                });
                return Err(error);
            }
        };
        let mut written = BTreeMap::new();
        let mut ticks = interval(self.period);
        // A tick that was missed while Consul was slow is not made up for: only the present health
        // counts.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Without it a stop that came together with a tick would be followed by one more
                // write of health.
                biased;
                () = stop.cancelled() => break,
                _now = ticks.tick() => {}
            }
            // Not within `select!`: a write that was cut off could still take effect at the server,
            // after the critical ones.
            self.sync(&checks, &mut written).await;
        }
        let mut errors = Vec::new();
        let critical = self.make_critical(&checks).await;
        if self.generation == Generation::Current {
            let earliest = Instant::now() + LEAST_CRITICAL;
            errors.extend(self.wait_for_proxy(&checks, critical).await.err());
            // Also without a proxy to wait for: other proxies must see the critical checks and stop
            // sending requests before the service vanishes.
            sleep_until(earliest).await;
            for service in self.plan.services() {
                errors.extend(self.registrar.deregister(service).await.err());
            }
        } else {
            errors.extend(critical.err());
        }
        errors.extend(self.log_out().await);
        finished(&errors)
    }

    async fn log_out(&self) -> Vec<Error> {
        match &self.logout {
            Some(logout) => logout.run().await,
            None => Vec::new(),
        }
    }

    /// Reads the checks to report, by id, as soon as Consul gives them.
    async fn checks_at_start(&self) -> Result<BTreeMap<String, HealthCheck>> {
        let began = Instant::now();
        let mut delays = Backoff::default()
            .with_initial(Duration::from_millis(250))
            .with_cap(Duration::from_secs(5))
            .with_jitter(Jitter::Extra(0.5));
        loop {
            let error = match self.checks().await {
                Ok(checks) => return Ok(checks),
                Err(error) => error,
            };
            let delay = delays.next_delay();
            let is_refusal = matches!(error, Error::Consul { .. });
            let in_time = is_refusal && began.elapsed() + delay < REFUSAL_LIMIT;
            // A refusal counts as temporary within the limit, although by itself it is not
            // retryable.
            if !in_time && !error.is_retryable() {
                return Err(error);
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "the checks could not be read; retrying"
            );
            sleep(delay).await;
        }
    }

    /// Reads the checks to report, by id.
    async fn checks(&self) -> Result<BTreeMap<String, HealthCheck>> {
        let mut found = BTreeMap::new();
        if let Some(service) = &self.plan.service {
            found.extend(by_id(self.registrar.checks(service).await?));
        }
        if self.generation == Generation::Current {
            let own = self.registrar.checks(&self.plan.proxy).await?;
            // Without `node:read` the catalog hides checks instead of refusing, which shows only
            // here.
            if own.len() != 1 {
                return Err(Error::input(format!(
                    "only one check should be associated with the sidecar proxy service {}, but {} can be read; \
                     mesh-init must have registered it, and with ACLs the token needs node:read on the cluster's node",
                    self.plan.proxy.id,
                    own.len(),
                )));
            }
            found.extend(by_id(own));
        }
        Ok(found)
    }

    /// Carries out one tick: stages the changes and writes them.
    async fn sync(
        &self,
        checks: &BTreeMap<String, HealthCheck>,
        written: &mut BTreeMap<String, String>,
    ) {
        let task = match self.metadata.task().await {
            Ok(task) => task,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "unable to get task metadata"
                );
                return;
            }
        };
        let changes = self.changes(&task, checks, written);
        let one_write = self.generation == Generation::Current;
        let batches: Vec<&[Change]> =
            // The agent's API takes one check a call, the catalog's any number in one transaction.
            if one_write { vec![&changes] } else { changes.chunks(1).collect() };
        for batch in batches {
            let staged: Vec<HealthCheck> =
                batch.iter().flat_map(|change| change.checks.iter().cloned()).collect();
            if staged.is_empty() {
                continue;
            }
            // Remembered only after success, so that the next tick writes a failed change again.
            match self.registrar.report(&staged).await {
                Ok(()) => batch.iter().for_each(|change| remember(change, written)),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to update the checks in Consul"
                ),
            }
        }
    }

    fn changes(
        &self,
        task: &Task,
        checks: &BTreeMap<String, HealthCheck>,
        written: &BTreeMap<String, String>,
    ) -> Vec<Change> {
        let mut wanted = Vec::new();
        if let Some(service) = &self.plan.service {
            for container in &self.containers {
                let id = self.check_id(&service.id, container);
                wanted.push((container.clone(), health_of(task, container), vec![id]));
            }
        }
        // The proxy's check covers every container: a task that is partly ill takes no traffic.
        if self.generation == Generation::Current {
            let status = dataplane_status(task, &self.containers);
            let health =
                ContainerHealth { status: status.to_owned(), ..health_of(task, DATAPLANE) };
            let ids = self.plan.services().map(|service| self.check_id(&service.id, DATAPLANE));
            wanted.push((DATAPLANE.to_owned(), health, ids.collect()));
        }
        wanted
            .into_iter()
            .filter(|(key, health, _ids)| written.get(key) != Some(&health.status))
            .map(|(key, health, ids)| {
                // Compared by ECS's words, not by Consul's two states: `UNKNOWN` after `UNHEALTHY`
                // also updates the output that people read.
                let staged = ids.iter().filter_map(|id| self.staged(checks, id, &health.status));
                Change { checks: staged.collect(), key, health }
            })
            .filter(|change| !change.checks.is_empty())
            .collect()
    }

    fn check_id(&self, service_id: &str, container: &str) -> String {
        match self.generation {
            Generation::Early => registration::synced_check_id(service_id, container),
            Generation::Current => registration::check_id(service_id, container),
        }
    }

    fn staged(
        &self,
        checks: &BTreeMap<String, HealthCheck>,
        id: &str,
        status: &str,
    ) -> Option<HealthCheck> {
        let Some(check) = checks.get(id) else {
            tracing::warn!("unable to find check with ID {id}");
            return None;
        };
        let what = if self.generation == Generation::Early { "task" } else { "container" };
        let mut check = check.clone();
        check.status = health_status(status);
        check.output = format!("ECS health status is \"{status}\" for {what} \"{id}\"");
        Some(check)
    }

    async fn make_critical(&self, checks: &BTreeMap<String, HealthCheck>) -> Result<()> {
        let staged: Vec<HealthCheck> =
            checks.keys().filter_map(|id| self.staged(checks, id, UNHEALTHY)).collect();
        if staged.is_empty() {
            return Ok(());
        }
        self.registrar.report(&staged).await
    }

    /// Waits until the proxy's container has stopped, whatever happens to the metadata. Meanwhile
    /// retries the write that makes the checks critical, and returns the result of that.
    async fn wait_for_proxy(
        &self,
        checks: &BTreeMap<String, HealthCheck>,
        mut critical: Result<()>,
    ) -> Result<()> {
        loop {
            if let Err(error) = &critical {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "failed to make the checks critical; retrying"
                );
            }
            match self.metadata.task().await {
                // A container that is absent from the metadata counts as stopped.
                Ok(task) if task.has_stopped(DATAPLANE) => return critical,
                Ok(_) => {}
                Err(error) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "unable to get task metadata"
                ),
            }
            sleep(self.period).await;
            if critical.is_err() {
                critical = self.make_critical(checks).await;
            }
        }
    }
}

/// Returns the health of a container; a missing one counts as unhealthy.
fn health_of(task: &Task, container: &str) -> ContainerHealth {
    match task.container(container) {
        Some(container) => container.health.clone(),
        None => ContainerHealth { status: UNHEALTHY.to_owned(), ..ContainerHealth::default() },
    }
}

fn by_id(checks: Vec<HealthCheck>) -> impl Iterator<Item = (String, HealthCheck)> {
    checks.into_iter().map(|check| (check.check_id.clone(), check))
}

fn remember(change: &Change, written: &mut BTreeMap<String, String>) {
    let previous = written.insert(change.key.clone(), change.health.status.clone());
    tracing::info!(
        container = change.key,
        status = change.health.status,
        previous = previous.unwrap_or_default(),
        statusSince = change.health.status_since,
        exitCode = change.health.exit_code,
        "container health check updated in Consul"
    );
}

fn finished(errors: &[Error]) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = errors.iter().map(|error| error_chain(error)).collect();
    Err(Error::Other {
        operation: "leaving the mesh",
        retryable: false,
        source: texts.join("; ").into(),
    })
}
