use std::sync::Arc;

use async_trait::async_trait;
use consul_watch::types::HealthCheck;

use super::MeshService;
use crate::Result;

/// Where services are registered: with an agent beside the task, or straight in the catalog.
///
/// Registering what is registered already changes nothing, so every call may be repeated.
#[async_trait]
pub trait Registrar: std::fmt::Debug + Send + Sync + 'static {
    /// Registers a service with its checks, which begin critical. A check that is there already
    /// keeps its state.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul).
    async fn register(&self, service: &MeshService) -> Result<()>;

    /// The checks of a service that health-sync reports, in the form to report them.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul).
    async fn checks(&self, service: &MeshService) -> Result<Vec<HealthCheck>>;

    /// Reports the state of checks. Those that fail have an unknown state; report them again.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul).
    async fn report(&self, checks: &[HealthCheck]) -> Result<()>;

    /// Takes a service and its checks away. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// [`Error::Consul`](crate::Error::Consul).
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
