//! Running several controllers.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    builder::{Controller, ControllerError, Placement},
    dependencies::{CircularDependency, Dependencies},
    error::BoxError,
    runner,
    supervisor::supervise,
};
use crate::{
    client::ResourceClient,
    lease::{AlwaysHeld, Lease},
};

/// Controllers cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A controller is declared wrongly.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// Two of them depend on each other.
    #[error(transparent)]
    Circular(#[from] CircularDependency),
    /// A controller could not be run at all.
    #[error("controller task failed")]
    Task(#[source] BoxError),
}

/// Runs controllers: each starts again when it fails, and singletons run while
/// the lease is held.
#[derive(Debug)]
pub struct Manager {
    client: Arc<dyn ResourceClient>,
    lease: Arc<dyn Lease>,
    controllers: Vec<Arc<Controller>>,
}

impl Manager {
    /// A manager without controllers, whose lease is always held. The
    /// controllers use `client`.
    pub fn new(client: impl ResourceClient) -> Self {
        Self { client: Arc::new(client), lease: Arc::new(AlwaysHeld), controllers: Vec::new() }
    }

    /// Sets when singletons run.
    #[must_use]
    pub fn with_lease(mut self, lease: impl Lease) -> Self {
        self.lease = Arc::new(lease);
        self
    }

    /// Adds a controller.
    ///
    /// # Errors
    ///
    /// If it is declared wrongly, if another one of its name is registered, and if
    /// it manages or watches a type that the service does not know. The last is
    /// known here only of a service in the same process; a controller over the
    /// network fails at its start, with an error in the log, and is started again.
    pub fn register(&mut self, controller: Controller) -> Result<(), ControllerError> {
        controller.check()?;
        if self.controllers.iter().any(|other| other.name == controller.name) {
            return Err(ControllerError::DuplicateController(controller.name));
        }
        if let Some(registry) = self.client.registry() {
            let mut types = std::iter::once(&controller.managed).chain(controller.watched_types());
            let unknown = types.find(|ty| registry.resolve(ty).is_none()).cloned();
            drop(types);
            if let Some(ty) = unknown {
                return Err(ControllerError::UnregisteredType { controller: controller.name, ty });
            }
        }
        self.controllers.push(Arc::new(controller));
        Ok(())
    }

    /// Returns the types on which each controller depends.
    pub fn dependencies(&self) -> Dependencies {
        Dependencies::of(self.controllers.iter().map(|controller| &**controller))
    }

    /// Runs until `stop`. Then no reconcile begins, and the one at hand is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If two controllers depend on each other; nothing was run then.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ManagerError> {
        self.dependencies().validate()?;
        let mut tasks = JoinSet::new();
        for controller in self.controllers {
            let held = match controller.placement {
                Placement::Singleton => self.lease.held(),
                Placement::EachServer => AlwaysHeld.held(),
            };
            let (client, stop) = (Arc::clone(&self.client), stop.clone());
            tasks.spawn(async move {
                let start =
                    |cancel| runner::run(Arc::clone(&controller), Arc::clone(&client), cancel);
                supervise(&controller.name, held, stop, start).await;
            });
        }
        while let Some(ended) = tasks.join_next().await {
            // A failed controller is started again by `supervise`; what gets here is a panic of ours.
            ended.map_err(|error| ManagerError::Task(error.into()))?;
        }
        Ok(())
    }
}
