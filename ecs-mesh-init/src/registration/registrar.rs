//! The seam between a task's services and the place of their registration.

use std::sync::Arc;

use async_trait::async_trait;
use consul_watch::types::HealthCheck;

use super::MeshService;
use crate::Result;

/// Service registry of a task: the agent in the task, or the catalog.
///
/// Registering again what is registered changes nothing, so every call may be repeated.
#[async_trait]
pub trait Registrar: std::fmt::Debug + Send + Sync + 'static {
    /// Registers a service with its checks, which start critical. A check that already exists keeps
    /// its state.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul) if Consul refuses or does not answer.
    async fn register(&self, service: &MeshService) -> Result<()>;

    /// Returns the checks of a service that health-sync reports, in the form of
    /// [`report`](Self::report).
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul) if Consul refuses or does not answer.
    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>>;

    /// Reports the states of checks. After an error each may or may not be written; report them
    /// again.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul) if Consul refuses or does not answer.
    async fn report(&self, checks: &[HealthCheck]) -> Result<()>;

    /// Deregisters a service with its checks. A missing service counts as deregistered.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul) if Consul refuses or does not answer.
    async fn deregister(&self, service: &MeshService) -> Result<()>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<R: Registrar + ?Sized> Registrar for Arc<R> {
    async fn register(&self, service: &MeshService) -> Result<()> {
        (**self).register(service).await
    }

    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>> {
        (**self).checks(service).await
    }

    async fn report(&self, checks: &[HealthCheck]) -> Result<()> {
        (**self).report(checks).await
    }

    async fn deregister(&self, service: &MeshService) -> Result<()> {
        (**self).deregister(service).await
    }
}
