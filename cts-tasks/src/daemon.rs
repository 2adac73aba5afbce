//! A whole deployment: what a binary starts, in the order in which it starts it.

mod difference;
mod reload;

use std::{path::Path, sync::Arc, time::Duration};

use consul_watch::{Client, Watcher};
use tokio_util::sync::CancellationToken;

pub use reload::Reloaded;

use crate::{
    Cluster, Config, DriverFactory, Engine, EngineOptions, Error, FileStore, Inspection, Result,
    Single, Stop, StopReason, Task, TaskName,
    config::{Loaded, Storage, TaskRules, shared_auto_commit, shared_working_dir},
    registration::keep_registered,
};

/// Starts and runs a deployment: checks Consul and the driver, serves the API,
/// runs every task once, and then whenever its condition says so.
///
/// A binary reads its command line and its configuration, makes one of these
/// with its drivers, and calls the steps in the order in which they stand here.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    factory: Arc<dyn DriverFactory>,
    client: Client,
    engine: Engine,
    /// Cancelled once the API is served.
    served: CancellationToken,
    cluster: Arc<dyn Cluster>,
    /// The tasks of the files, as they were last taken over.
    files: tokio::sync::Mutex<Vec<Task>>,
    #[cfg(feature = "api")]
    rules: Option<TaskRules>,
    #[cfg(feature = "api")]
    exposition: Option<crate::Exposition>,
    #[cfg(feature = "api")]
    pages: Option<crate::Pages>,
}

/// Options of a [`Daemon`] beside its configuration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DaemonOptions {
    /// For the engine.
    pub engine: EngineOptions,
    /// The other instances; none by default.
    pub cluster: Arc<dyn Cluster>,
    /// Rules for tasks that are created through the API, from
    /// [`crate::config::Loaded`]; without rules, the default, none can be created.
    pub rules: Option<TaskRules>,
    /// Metrics that the API serves at `/metrics` if the configuration sets
    /// `api_metrics`; none by default.
    #[cfg(feature = "api")]
    pub exposition: Option<crate::Exposition>,
    /// Pages for a browser beside the API, such as `cts_tasks::status_page()` of the feature
    /// `ui`; none by default.
    #[cfg(feature = "api")]
    pub pages: Option<crate::Pages>,
}

impl DaemonOptions {
    /// Returns what a configuration says of them: the rules for tasks made through the API,
    /// and the store of its block `storage`.
    pub fn of(loaded: &Loaded) -> Self {
        let mut options = Self { rules: Some(loaded.rules.clone()), ..Self::default() };
        options.engine.store = match &loaded.config.storage {
            Some(Storage::File { path }) => Arc::new(FileStore::new(path)),
            None => options.engine.store,
        };
        options
    }
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            engine: EngineOptions::default(),
            cluster: Arc::new(Single),
            rules: None,
            #[cfg(feature = "api")]
            exposition: None,
            #[cfg(feature = "api")]
            pages: None,
        }
    }
}

/// Waits between two tries to find a leader.
///
/// Source: Consul-Terraform-Sync 0.9, creation of the client set.
const LEADER_WAITS: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
];

impl Daemon {
    /// Puts together what a configuration describes, with [`DaemonOptions::of`] it.
    ///
    /// # Errors
    ///
    /// As [`Daemon::new`].
    pub fn of(loaded: Loaded) -> Result<Self> {
        let options = DaemonOptions::of(&loaded);
        Self::new(loaded.config, loaded.driver, options)
    }

    /// Puts a deployment together; nothing outside the process is touched.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`] when the settings for Consul make no client.
    pub fn new(
        config: Config,
        factory: Arc<dyn DriverFactory>,
        options: DaemonOptions,
    ) -> Result<Self> {
        let client = Client::new(config.consul.client_config())
            .map_err(|source| Error::consul("client", source))?;
        Ok(Self::with_client(config, factory, options, client))
    }

    /// As [`Daemon::new`], with a client of the caller's: to an in-process
    /// Consul in a test, say.
    pub fn with_client(
        config: Config,
        factory: Arc<dyn DriverFactory>,
        options: DaemonOptions,
        client: Client,
    ) -> Self {
        let mut watcher = Watcher::builder(client.clone());
        if let Some(connections) = config.consul.watch_connections {
            watcher = watcher.connections(connections.into());
        }
        let watcher = watcher.build();
        let mut engine_options = options.engine;
        engine_options.working_dir.get_or_insert_with(|| config.working_dir.clone());
        let engine = Engine::new(watcher, Arc::clone(&factory), engine_options);
        Self {
            files: tokio::sync::Mutex::new(config.tasks.clone()),
            config,
            factory,
            client,
            engine,
            served: CancellationToken::new(),
            cluster: options.cluster,
            #[cfg(feature = "api")]
            rules: options.rules,
            #[cfg(feature = "api")]
            exposition: options.exposition,
            #[cfg(feature = "api")]
            pages: options.pages,
        }
    }

    /// Waits until [`Daemon::run`] serves the API: from then on the daemon can be asked, whether or
    /// not its tasks have run.
    pub async fn serving(&self) {
        self.served.cancelled().await;
    }

    /// The engine, to look at its state.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits until Consul answers and has a leader, for about a minute.
    ///
    /// Deviation: upstream gives up at once when the connection is refused.
    /// Here that is waited for too, since Consul may be starting beside us.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`] or [`Error::Other`] when the time is up, or at once
    /// when no retry can help.
    pub async fn check_consul(&self, stop: &Stop) -> Result<()> {
        let mut waits = LEADER_WAITS.iter();
        loop {
            let asked = tokio::select! {
                asked = self.client.status_leader() => asked,
                reason = stop.stopped() => return Err(Error::Stopped { reason }),
            };
            let error = match asked {
                Ok(Some(leader)) => {
                    tracing::info!(
                        address = self.config.consul.address,
                        leader,
                        "connected to Consul"
                    );
                    return Ok(());
                }
                Ok(None) => no_leader(),
                Err(source) => Error::consul("status.leader", source),
            };
            let delay = match waits.next() {
                Some(delay) if error.is_retryable() => *delay,
                Some(_) | None => return Err(error),
            };
            tracing::warn!(
                address = self.config.consul.address,
                error = &error as &dyn std::error::Error,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "Consul is not ready, trying again"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                reason = stop.stopped() => return Err(Error::Stopped { reason }),
            }
        }
    }

    /// Checks that the driver can work.
    ///
    /// # Errors
    ///
    /// The driver's, or [`Error::Stopped`] when the stop comes first.
    pub async fn start_driver(&self, stop: &Stop) -> Result<()> {
        tokio::select! {
            started = self.factory.start() => started,
            reason = stop.stopped() => Err(Error::Stopped { reason }),
        }
    }

    /// Checks what must be there before the first task: [`Daemon::check_consul`], then
    /// [`Daemon::start_driver`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn check(&self, stop: &Stop) -> Result<()> {
        self.check_consul(stop).await?;
        self.start_driver(stop).await
    }

    /// Says what a run of each task would change; see [`Engine::inspect`].
    ///
    /// # Errors
    ///
    /// That of the first task that fails.
    pub async fn inspect(&self, only: &[TaskName], stop: &Stop) -> Result<Vec<Inspection>> {
        self.load(stop).await?;
        self.engine.inspect(only, stop).await
    }

    /// As [`Daemon::inspect`], and tells of each inspection as soon as it ends.
    ///
    /// # Errors
    ///
    /// That of the first task that fails, after what came before was told.
    pub async fn inspect_each(
        &self,
        only: &[TaskName],
        stop: &Stop,
        report: impl FnMut(Inspection) + Send,
    ) -> Result<()> {
        self.load(stop).await?;
        self.engine.inspect_each(only, stop, report).await
    }

    /// Runs every task once; see [`Engine::once`].
    ///
    /// # Errors
    ///
    /// That of the first task that fails.
    pub async fn once(&self, stop: &Stop) -> Result<()> {
        self.load(stop).await?;
        if self.config.tasks.is_empty() {
            tracing::warn!("no tasks configured");
        }
        self.engine.once(stop).await
    }

    /// Serves the API, registers this instance, and runs tasks until the stop.
    ///
    /// # Errors
    ///
    /// When the API's port is taken, or as [`Engine::run`].
    pub async fn run(&self, stop: &Stop) -> Result<()> {
        let clustered = self.cluster.name().is_some();
        if !clustered {
            self.load(stop).await?;
        }
        let inner = stop.child();
        #[cfg(feature = "api")]
        let api = self.api().await?;
        self.served.cancel();
        #[cfg(feature = "api")]
        let port = api.local_addr()?.port();
        // Without the feature `api` nothing answers, so there is no port to tell of.
        #[cfg(not(feature = "api"))]
        let port = 0;
        let work = async {
            let result =
                if clustered { self.terms(&inner).await } else { self.engine.run(&inner).await };
            inner.stop(StopReason::Shutdown);
            result
        };
        let attended = self.cluster.attend(&inner);
        let registered = async {
            if self.config.consul.service_registration.enabled {
                keep_registered(&self.client, &self.config, port, &self.cluster.tags(), &inner)
                    .await;
            }
        };
        let served = async {
            #[cfg(feature = "api")]
            {
                tracing::info!(port, "serving the API");
                let result = api.serve(inner.clone()).await;
                inner.stop(StopReason::Shutdown);
                result
            }
            #[cfg(not(feature = "api"))]
            Ok(())
        };
        let (worked, (), (), served): (Result<()>, (), (), Result<()>) =
            futures::future::join4(work, attended, registered, served).await;
        worked.and(served)
    }

    /// Runs the engine whenever this instance leads. What the cluster has stored
    /// counts, never the tasks of the files.
    async fn terms(&self, stop: &Stop) -> Result<()> {
        while stop.reason().is_none() {
            let term = match self.cluster.lead(stop).await {
                Ok(term) => term,
                Err(Error::Stopped { .. }) if stop.reason().is_some() => break,
                Err(error) => return Err(error),
            };
            let worked = match self.engine.load(Vec::new(), &term).await {
                Ok(()) => self.engine.run(&term).await,
                Err(error) => Err(error),
            };
            self.cluster.resign().await;
            match worked {
                Ok(()) => {}
                Err(Error::Fenced { .. } | Error::NotPermitted { .. } | Error::Stopped { .. }) => {
                    tracing::warn!("this instance leads no more");
                }
                Err(error) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot go on as leader, standing for election again"
                ),
            }
        }
        Ok(())
    }

    /// The API as configured, on its port.
    #[cfg(feature = "api")]
    async fn api(&self) -> Result<crate::ApiServer> {
        let cluster = Arc::clone(&self.cluster);
        let mut api =
            crate::ApiServer::bind_everywhere(self.config.port, self.engine.clone(), cluster)
                .await?;
        if let Some(rules) = &self.rules {
            api = api.accept_tasks(rules.clone());
        }
        api = api.with_hosts(self.hosts()).with_cors_origins(self.config.api_cors_origins.clone());
        if let Some(tls) = &self.config.tls {
            api = api.with_tls(tls)?;
        }
        if let Some(file) = &self.config.api_token_file {
            api = api.with_token_file(file.clone()).await?;
        }
        if let Some(pages) = &self.pages {
            api = api.with_pages(pages.clone());
        }
        match self.exposition.as_ref().filter(|_| self.config.api_metrics) {
            Some(exposition) => Ok(api.with_metrics(exposition.clone())),
            None => Ok(api),
        }
    }

    /// The names by which the configuration says that this instance is reached.
    #[cfg(feature = "api")]
    fn hosts(&self) -> Vec<String> {
        let registration = &self.config.consul.service_registration;
        let check = registration.default_check_address.split("://").last().unwrap_or_default();
        let check = check.split('/').next().unwrap_or_default();
        let mut hosts = self.config.api_hosts.clone();
        hosts.extend([registration.address.clone(), check.to_owned()]);
        hosts.extend(self.cluster.address());
        hosts
    }

    async fn load(&self, stop: &Stop) -> Result<()> {
        self.engine.load_files(self.config.tasks.clone(), stop).await?;
        let tasks = self.engine.state(|state| state.tasks.clone());
        let shared = shared_auto_commit(&tasks, &self.config.providers)
            .or_else(|| shared_working_dir(&tasks, Path::new("")));
        // The files were checked by themselves, and stored tasks beside earlier files.
        shared.map_or(Ok(()), |reason| {
            Err(Error::other("taking stored tasks over", reason).permanent())
        })
    }
}

fn no_leader() -> Error {
    Error::Other {
        operation: "client set",
        retryable: true,
        source: "client set: no consul leader detected".into(),
    }
}
