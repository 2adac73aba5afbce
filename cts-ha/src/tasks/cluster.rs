//! One instance's part in a cluster of Consul-Terraform-Sync: election, store, membership,
//! compatibility.

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Backoff, Client, Clock, QueryOptions, SystemClock, client::PutCondition, error_chain,
    types::SessionBehavior,
};
use cts_tasks::{
    Change, Cluster, Config, DaemonOptions, Election, Member, Permit, Role, State, Stop,
    StopReason, Task, TaskStore,
};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{
    FailoverRun, HighAvailability, KvTaskStore, StoreOptions,
    compat::{self, Incompatible},
    members::{hidden, members},
    records::{Layout, VERSION},
    store::seam,
};
use crate::{
    Candidate, Consul, ConsulElector, ElectionOptions, Elector as _, Error, KeptSession,
    LOCK_FLAGS, Leader, Leadership, Result, SessionOptions,
};

/// Settings of a [`CtsCluster`] beside the configuration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// `true` to discard the stored tasks whenever this instance becomes leader. Default `false`.
    pub reset_storage: bool,
    /// Clock that measures leases; by default the machine's.
    pub clock: Arc<dyn Clock>,
    /// Directory of relative modules; by default the process's.
    pub directory: PathBuf,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { reset_storage: false, clock: Arc::new(SystemClock), directory: ".".into() }
    }
}

/// The part of one instance in a cluster of Consul-Terraform-Sync.
///
/// It elects the leader, which alone runs tasks; keeps their state in Consul KV; lists the members;
/// and checks that this instance could lead. [`CtsCluster::join`] puts it into the options of a
/// [`cts_tasks::Daemon`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let consul = consul_watch::testing::TestConsul::new().client();
/// use std::sync::Arc;
/// use cts_ha::tasks::{ClusterOptions, CtsCluster, HighAvailability};
/// use cts_tasks::{Cluster as _, Config, DaemonOptions};
///
/// let config = Config::default();
/// let settings = HighAvailability::new("cluster-a");
/// let cluster = CtsCluster::with_client(&config, settings, ClusterOptions::default(), consul)?;
/// let mut options = DaemonOptions::default();
/// Arc::new(cluster).join(&mut options);
/// assert_eq!(options.cluster.tags(), ["cts-cluster:cluster-a"]);
/// # Ok::<(), cts_ha::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CtsCluster {
    settings: HighAvailability,
    options: ClusterOptions,
    client: Client,
    consul: Consul,
    layout: Layout,
    elector: ConsulElector,
    id: String,
    /// Name under which this instance registers, if it does.
    service_name: Option<String>,
    tasks: Vec<Task>,
    driver: String,
    providers: Vec<String>,
    current: Mutex<Option<Current>>,
    /// `true` once this instance has led.
    has_stood: Mutex<bool>,
}

/// Term of leadership of this instance.
struct Current {
    leadership: Leadership,
    store: Arc<KvTaskStore>,
    /// Task that stops the term's work when leadership is lost, and makes the stop urgent in time.
    loss_watch: JoinHandle<()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.loss_watch.abort();
    }
}

/// Pause before another candidacy after the store was unusable.
const AFTER_BAD_STORE: Duration = Duration::from_secs(15);

impl CtsCluster {
    /// Creates the cluster of a configuration, in the Consul that it names.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`] if the settings for Consul make no client.
    pub fn new(
        config: &Config,
        settings: HighAvailability,
        options: ClusterOptions,
    ) -> Result<Self> {
        let client = Client::new(config.consul.client_config())
            .map_err(|source| Error::consul("make a client for Consul", "", source))?;
        Self::with_client(config, settings, options, client)
    }

    /// Creates the cluster with a client of the caller's.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a TTL or lock-delay out of range.
    pub fn with_client(
        config: &Config,
        settings: HighAvailability,
        options: ClusterOptions,
        client: Client,
    ) -> Result<Self> {
        let consul = Consul::new(client.clone()).in_namespace(settings.namespace.clone());
        let layout = Layout::new(&settings.directory());
        let registration = &config.consul.service_registration;
        let service_name = registration.enabled.then(|| registration.service_name.clone());
        let mut candidate = Candidate::new(&config.id);
        candidate.address.clone_from(&settings.address);
        candidate.port = Some(config.port).filter(|port| *port != 0);
        candidate.service_name.clone_from(&service_name);
        candidate.version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let election = ElectionOptions {
            session_ttl: settings.session_ttl,
            lock_delay: settings.lock_delay,
            session_name: Some(format!("cts-{}-{}", settings.cluster, config.id)),
            clock: Arc::clone(&options.clock),
            monitor_retries: settings.monitor_retries,
            monitor_retry_time: settings.monitor_retry_time,
            ..ElectionOptions::default()
        };
        let elector = ConsulElector::new(&consul, layout.leader(), candidate, election)?;
        let providers: BTreeSet<String> =
            config.providers.iter().map(|provider| provider.name.clone()).collect();
        Ok(Self {
            settings,
            options,
            client,
            consul,
            layout,
            elector,
            id: config.id.clone(),
            service_name,
            tasks: config.tasks.clone(),
            driver: config.driver.label.clone(),
            providers: providers.into_iter().collect(),
            current: Mutex::new(None),
            has_stood: Mutex::new(false),
        })
    }

    /// Makes a daemon with these options part of the cluster: sets its store, its permit, and the
    /// policy of first runs.
    pub fn join(self: Arc<Self>, options: &mut DaemonOptions) {
        // A failing task must not keep the cluster without a leader.
        options.engine.allow_failed_first_runs = true;
        options.engine.skip_unchanged_first_runs =
            self.settings.failover_run == FailoverRun::Changed;
        let store: Arc<dyn TaskStore> = Arc::<Self>::clone(&self);
        let permit: Arc<dyn Permit> = Arc::<Self>::clone(&self);
        options.engine.store = store;
        options.engine.permit = permit;
        options.cluster = self;
    }

    /// Checks that this instance could run the stored tasks.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] for unreadable documents; otherwise the error of Consul.
    pub async fn check_compatibility(&self) -> Result<Vec<Incompatible>> {
        let store = KvTaskStore::read_only(&self.consul, &self.settings.directory());
        let state = store.read().await?;
        Ok(compat::check(&state.tasks, &self.options.directory, &self.providers).await)
    }

    /// Returns a reason why this instance could not run all tasks as leader: the stored ones, or
    /// those of its configuration if it discards the stored ones.
    async fn obstacle(&self) -> Result<Option<String>> {
        let found = if self.options.reset_storage {
            compat::check(&self.tasks, &self.options.directory, &self.providers).await
        } else {
            match self.check_compatibility().await {
                Ok(found) => found,
                // A leader could not open such a store either. It may be repaired, or reset.
                Err(error @ Error::Data { .. }) => return Ok(Some(error_chain(&error))),
                Err(error) => return Err(error),
            }
        };
        Ok(found.first().map(ToString::to_string))
    }

    /// Campaigns; with `compat_blocks_leadership` only while this instance could run all stored
    /// tasks.
    async fn campaign(&self) -> Result<Leadership> {
        if !self.settings.compat_blocks_leadership {
            return self.elector.campaign().await;
        }
        loop {
            self.until_compatible(true).await?;
            let leadership = tokio::select! {
                leadership = self.elector.campaign() => leadership?,
                found = self.until_compatible(false) => {
                    // Its session would keep the lock from others if it were granted now.
                    self.elector.shutdown().await;
                    found?;
                    continue;
                }
            };
            // The previous leader may have stored a task since the last check.
            let obstacle = self.obstacle().await;
            if matches!(obstacle, Ok(None)) {
                return Ok(leadership);
            }
            leadership.resign().await;
            // The loop logs an obstacle before this instance stands again.
            obstacle?;
        }
    }

    /// Waits until this instance could run all stored tasks, or until it could not.
    async fn until_compatible(&self, compatible: bool) -> Result<()> {
        let mut backoff = Backoff::default().with_initial(Duration::from_secs(1));
        let mut told = false;
        loop {
            let pause = match self.obstacle().await {
                Ok(obstacle) => {
                    if obstacle.is_none() == compatible {
                        return Ok(());
                    }
                    // Once for each wait, not at every interval.
                    if let Some(error) = obstacle
                        && !std::mem::replace(&mut told, true)
                    {
                        tracing::warn!(
                            target: "ha.compat",
                            error,
                            "does not stand for election until it could run all stored tasks, as \
                             compat_blocks_leadership says"
                        );
                    }
                    backoff.reset();
                    self.settings.compat_check_interval
                }
                Err(error) if error.is_retryable() => {
                    tracing::warn!(
                        target: "ha.compat",
                        error = &error as &dyn std::error::Error,
                        "cannot check the compatibility, trying again"
                    );
                    backoff.next_delay().min(self.settings.compat_check_interval)
                }
                Err(error) => return Err(error),
            };
            self.options.clock.sleep(pause).await;
        }
    }

    /// Returns the leader if it is another instance, as far as known.
    ///
    /// A lock in this instance's own name belongs to its earlier process, which crashed, or to
    /// itself while the store is opened. A client that is sent there would ask this instance again.
    fn other_leader(&self) -> Option<Leader> {
        self.elector.leader().filter(|leader| leader.id != self.id)
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> cts_tasks::Result<Arc<KvTaskStore>> {
        let store = self.current().as_ref().map(|current| Arc::clone(&current.store));
        store.ok_or_else(|| cts_tasks::Error::Fenced {
            reason: "this instance does not lead".into(),
        })
    }

    async fn open(&self, leadership: &Leadership) -> Result<KvTaskStore> {
        let mut options = StoreOptions::default();
        options.configured.clone_from(&self.tasks);
        options.reset = self.options.reset_storage;
        options.driver.clone_from(&self.driver);
        KvTaskStore::open(&self.settings.directory(), leadership, options).await
    }

    /// Returns `true` for an error that ends the process: one that no retry can cure, before this
    /// instance could ever stand.
    fn is_fatal(&self, error: &Error) -> bool {
        let stood = *self.has_stood.lock().unwrap_or_else(PoisonError::into_inner);
        !stood && !error.is_retryable()
    }

    fn note_standing(&self) {
        *self.has_stood.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn begin(&self, leadership: Leadership, store: KvTaskStore, stop: &Stop) -> Stop {
        let term = stop.child();
        let (lost, signal) = (leadership.clone(), term.clone());
        let clock = Arc::clone(&self.options.clock);
        let loss_watch = tokio::spawn(async move {
            lost.ended().cancelled().await;
            signal.stop(StopReason::LeadershipLost);
            // A resigned leader's work has already ended; after a loss another may lead soon.
            clock.sleep(lost.wind_up_left()).await;
            signal.stop_now(StopReason::LeadershipLost);
        });
        *self.current() = Some(Current { leadership, store: Arc::new(store), loss_watch });
        term
    }

    /// Publishes this instance's record, at once and then at each interval, until its session is
    /// gone.
    async fn attend_once(&self) -> Result<()> {
        let options = SessionOptions {
            name: format!("cts-{}-{}-instance", self.settings.cluster, self.id),
            behavior: SessionBehavior::Delete,
            ttl: self.settings.session_ttl,
            // No lock-delay: a restarted instance must be able to write its record at once.
            lock_delay: Duration::ZERO,
            ..SessionOptions::default()
        };
        let session =
            KeptSession::create(&self.consul, &options, Arc::clone(&self.options.clock)).await?;
        let ended = session.lease().ended().clone();
        let publishing = async {
            loop {
                let found = self.look().await;
                let key = self.layout.instance(&self.id);
                let condition = PutCondition::Acquire(session.id().clone());
                let told =
                    self.consul.put(&key, self.record(&found), LOCK_FLAGS, condition).await?;
                // The session of this instance's previous process may still hold the record.
                let again = if told { Duration::MAX } else { self.settings.session_ttl };
                let pause = self.settings.compat_check_interval.min(again);
                self.options.clock.sleep(pause).await;
            }
        };
        let done = tokio::select! {
            done = publishing => done,
            () = ended.cancelled() => Ok(()),
        };
        session.close().await;
        done
    }

    async fn look(&self) -> Vec<Incompatible> {
        match self.check_compatibility().await {
            Ok(found) => {
                for incompatible in &found {
                    tracing::error!(target: "ha.compat", error = %incompatible, "");
                }
                found
            }
            Err(error) => {
                tracing::warn!(
                    target: "ha.compat",
                    error = &error as &dyn std::error::Error,
                    "cannot check the compatibility"
                );
                Vec::new()
            }
        }
    }

    /// Compares the members that the token can see with the records of all instances. If it cannot
    /// see this instance, that is an error; others are warned of.
    async fn look_for_hidden(&self, found: &[Member]) -> cts_tasks::Result<()> {
        let tag = self.settings.tag();
        let is_found = |id: &str| found.iter().any(|member| member.id == id);
        if let Some(service) = &self.service_name
            && !is_found(&self.id)
            && self.is_registered().await
        {
            return Err(cts_tasks::Error::Consul {
                what: "the members of the cluster".to_owned(),
                retryable: false,
                source: hidden(&self.id, service, &tag).into(),
            });
        }
        let folder = self.layout.instances();
        let Ok(records) = self.consul.list(&folder, None, Duration::ZERO).await else {
            return Ok(());
        };
        for pair in records.value {
            let id = pair.key.strip_prefix(&folder).unwrap_or_default();
            let record: serde_json::Value = serde_json::from_slice(&pair.value).unwrap_or_default();
            if let Some(service) = record.get("service_name").and_then(serde_json::Value::as_str)
                && id != self.id
                && !is_found(id)
            {
                tracing::warn!("{}", hidden(id, service, &tag));
            }
        }
        Ok(())
    }

    /// Returns `true` if the agent knows this instance.
    async fn is_registered(&self) -> bool {
        let known = self.client.agent_service(&self.id, &QueryOptions::default()).await;
        known.is_ok_and(|known| known.value.is_some())
    }

    fn record(&self, found: &[Incompatible]) -> Bytes {
        let now = self.options.clock.now().duration_since(SystemTime::UNIX_EPOCH);
        let errors: Vec<String> = found.iter().map(ToString::to_string).collect();
        json!({
            "v": VERSION,
            "address": self.settings.address,
            "service_name": self.service_name,
            "version": env!("CARGO_PKG_VERSION"),
            "compat": {
                "ok": errors.is_empty(),
                "errors": errors,
                "checked_at": now.map_or(0, |now| now.as_secs()),
            },
        })
        .to_string()
        .into()
    }
}

#[async_trait]
impl Cluster for CtsCluster {
    fn role(&self) -> Role {
        if Permit::check(self).is_ok() {
            return Role::Leader;
        }
        let leader = self.other_leader();
        Role::Follower {
            address: leader.as_ref().and_then(Leader::host_and_port),
            leader: leader.map(|leader| leader.id),
        }
    }

    fn name(&self) -> Option<String> {
        Some(self.settings.cluster.clone())
    }

    fn address(&self) -> Option<String> {
        self.settings.address.clone()
    }

    fn redirects(&self) -> bool {
        self.settings.redirect
    }

    fn tags(&self) -> Vec<String> {
        vec![self.settings.tag()]
    }

    async fn members(&self) -> cts_tasks::Result<Vec<Member>> {
        let leads = Permit::check(self).is_ok();
        let leader = if leads { self.elector.leader() } else { self.other_leader() };
        let found = members(&self.client, &self.settings.tag(), leader.as_ref()).await?;
        self.look_for_hidden(&found).await?;
        Ok(found)
    }

    async fn election(&self) -> cts_tasks::Result<Option<Election>> {
        let answer = self.consul.get(&self.layout.leader(), None, Duration::ZERO).await;
        let Some(pair) = answer.map_err(seam)?.value else { return Ok(None) };
        let leader: Option<Leader> =
            pair.session.as_ref().and_then(|_held| serde_json::from_slice(&pair.value).ok());
        let since = leader.map(|leader| UNIX_EPOCH + Duration::from_secs(leader.acquired_at));
        Ok(Some(Election::new(pair.lock_index, since)))
    }

    async fn lead(&self, stop: &Stop) -> cts_tasks::Result<Stop> {
        let mut backoff = Backoff::default().with_initial(Duration::from_secs(1));
        loop {
            let leadership = tokio::select! {
                leadership = self.campaign() => leadership,
                reason = stop.stopped() => {
                    // A lock that was just granted would keep the others waiting.
                    self.elector.shutdown().await;
                    return Err(cts_tasks::Error::Stopped { reason });
                }
            };
            let delay = match leadership {
                Err(error) if self.is_fatal(&error) => return Err(seam(error)),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "cannot stand for election"
                    );
                    AFTER_BAD_STORE
                }
                Ok(leadership) => match self.open(&leadership).await {
                    Ok(store) => {
                        self.note_standing();
                        return Ok(self.begin(leadership, store, stop));
                    }
                    Err(error) => {
                        // Another instance may be able to open the store.
                        leadership.resign().await;
                        if self.is_fatal(&error) && matches!(error, Error::Permission { .. }) {
                            return Err(seam(error));
                        }
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "cannot use the stored state, and does not lead"
                        );
                        if error.is_retryable() || matches!(error, Error::Ended(_)) {
                            backoff.next_delay()
                        } else {
                            AFTER_BAD_STORE
                        }
                    }
                },
            };
            tokio::select! {
                () = self.options.clock.sleep(delay) => {}
                reason = stop.stopped() => return Err(cts_tasks::Error::Stopped { reason }),
            }
        }
    }

    async fn resign(&self) {
        let current = self.current().take();
        if let Some(current) = current {
            current.leadership.resign().await;
        }
    }

    async fn attend(&self, stop: &Stop) {
        let mut backoff = Backoff::default().with_initial(Duration::from_secs(1));
        loop {
            let attended = tokio::select! {
                attended = self.attend_once() => attended,
                _reason = stop.stopped() => return,
            };
            match attended {
                Ok(()) => backoff.reset(),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot tell the others of this instance"
                ),
            }
            tokio::select! {
                () = self.options.clock.sleep(backoff.next_delay()) => {}
                _reason = stop.stopped() => return,
            }
        }
    }
}

#[async_trait]
impl Permit for CtsCluster {
    async fn confirm(&self) -> cts_tasks::Result<()> {
        Permit::check(self)?;
        let leadership = self.current().as_ref().map(|current| current.leadership.clone());
        // Between the check and here the term may have ended.
        let confirmed = match leadership {
            Some(leadership) => leadership.confirm().await,
            None => return Permit::check(self),
        };
        confirmed.map_err(|error| match error {
            Error::Ended(_) => cts_tasks::Error::NotPermitted { reason: error.to_string() },
            error => seam(error),
        })
    }

    fn check(&self) -> cts_tasks::Result<()> {
        let reason = match self.current().as_ref() {
            Some(current) => match current.leadership.check() {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
            None => "this instance does not lead".to_owned(),
        };
        Err(cts_tasks::Error::NotPermitted { reason })
    }
}

#[async_trait]
impl TaskStore for CtsCluster {
    async fn load(&self) -> cts_tasks::Result<State> {
        self.store()?.load().await
    }

    async fn commit(&self, batch: &[Change]) -> cts_tasks::Result<()> {
        self.store()?.commit(batch).await
    }
}

impl fmt::Debug for CtsCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CtsCluster")
            .field("settings", &self.settings)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
