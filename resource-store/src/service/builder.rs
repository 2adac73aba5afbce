//! Putting a service together.

use std::sync::Arc;

use super::{Inner, ResourceService};
use crate::{
    acl::{AllowAll, Authorization, SameForAll},
    backend::Backend,
    clock::{Clock, SystemClock},
    registry::Registry,
    tenancy::{StaticTenancies, TenancyBridge},
};

/// The attitude to known mistakes of Consul's service: corrected, or as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parity {
    /// A delete compares a version that is given; a write that names the uid of
    /// a deleted incarnation is refused; over HTTP, a version in the body of a
    /// write is compared.
    #[default]
    Corrected,
    /// As Consul 1.21: a delete compares a version only if a uid is given and
    /// nothing holds the resource back; a write with the uid of a deleted
    /// incarnation creates a new one; a version in a body is not looked at.
    Upstream,
}

/// Puts a [`ResourceService`] together.
#[derive(Debug)]
#[must_use]
pub struct ServiceBuilder {
    registry: Registry,
    backend: Arc<dyn Backend>,
    tenancies: Arc<dyn TenancyBridge>,
    authorization: Arc<dyn Authorization>,
    clock: Arc<dyn Clock>,
    parity: Parity,
    guarded: bool,
}

impl ServiceBuilder {
    pub(super) fn new(registry: Registry, backend: Arc<dyn Backend>) -> Self {
        Self {
            registry,
            backend,
            tenancies: Arc::new(StaticTenancies::default()),
            authorization: Arc::new(SameForAll::new(AllowAll)),
            clock: Arc::new(SystemClock),
            parity: Parity::default(),
            guarded: false,
        }
    }

    /// Sets which partitions and namespaces there are; only `default` with
    /// `default` if this is not called.
    pub fn tenancies(mut self, tenancies: impl TenancyBridge) -> Self {
        self.tenancies = Arc::new(tenancies);
        self
    }

    /// Sets who may do what; everyone everything if this is not called.
    pub fn authorization(mut self, authorization: impl Authorization) -> Self {
        self.authorization = Arc::new(authorization);
        self.guarded = true;
        self
    }

    /// Sets the clock; the machine's if this is not called.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets whether to do as Consul does where that is known to be wrong.
    pub fn parity(mut self, parity: Parity) -> Self {
        self.parity = parity;
        self
    }

    /// The service.
    pub fn build(self) -> ResourceService {
        let inner = Inner {
            registry: Arc::new(self.registry),
            backend: self.backend,
            tenancies: self.tenancies,
            authorization: self.authorization,
            clock: self.clock,
            parity: self.parity,
            guarded: self.guarded,
        };
        ResourceService { inner: Arc::new(inner) }
    }
}
