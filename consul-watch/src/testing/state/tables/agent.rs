//! Services and checks of the local agent as it keeps them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    testing::state::format::fingerprint,
    types::{HealthCheck, Service},
};

/// The services and checks of the local agent; the catalog is brought in line with
/// it at once.
#[derive(Default)]
pub(in crate::testing) struct LocalAgent {
    pub(in crate::testing) services: BTreeMap<String, Service>,
    pub(in crate::testing) checks: BTreeMap<String, LocalCheck>,
    /// Ids of sidecars that came with another service, and go with it.
    pub(in crate::testing) sidecars: BTreeSet<String>,
    /// The secret that stands in for a missing token.
    pub(in crate::testing) default_token: String,
}

impl fmt::Debug for LocalAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAgent")
            .field("services", &self.services.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(in crate::testing) struct LocalCheck {
    pub(in crate::testing) check: HealthCheck,
    /// Interval and limit, as they are shown.
    pub(in crate::testing) timing: (String, String),
    /// Id of the service whose checks it mirrors.
    pub(in crate::testing) alias: Option<String>,
    pub(in crate::testing) ttl: Option<Duration>,
    /// When the TTL runs out.
    pub(in crate::testing) expires: Option<Instant>,
    /// When a changed output is to reach the catalog.
    pub(in crate::testing) sync: Option<Instant>,
    /// When the service is removed for having been critical for too long.
    pub(in crate::testing) remove: Option<Instant>,
    pub(in crate::testing) remove_after: Option<Duration>,
}

impl LocalAgent {
    pub(in crate::testing) fn next_due(&self) -> Option<Instant> {
        self.checks
            .values()
            .flat_map(|check| [check.expires, check.sync, check.remove])
            .flatten()
            .min()
    }

    pub(in crate::testing) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    pub(in crate::testing) fn checks(&self) -> impl Iterator<Item = &HealthCheck> {
        self.checks.values().map(|local| &local.check)
    }

    pub(in crate::testing) fn check(&self, id: &str) -> Option<&HealthCheck> {
        self.checks.get(id).map(|local| &local.check)
    }

    pub(in crate::testing) fn set_default_token(&mut self, secret: String) {
        self.default_token = secret;
    }

    /// The interval and the limit of a check, as the agent shows them.
    pub(in crate::testing) fn timing(&self, check: &str) -> Option<(String, String)> {
        self.checks.get(check).map(|local| local.timing.clone())
    }

    /// Returns the number of checks that wait for reports.
    pub(in crate::testing) fn ttls(&self) -> usize {
        self.checks.values().filter(|local| local.ttl.is_some()).count()
    }

    /// The secret that a request counts as sending.
    pub(in crate::testing) fn token_or_default<'a>(&'a self, sent: &'a str) -> &'a str {
        if sent.is_empty() { &self.default_token } else { sent }
    }

    /// A service with the hash of its definition.
    pub(in crate::testing) fn service(&self, id: &str) -> Option<(&Service, String)> {
        let service = self.services.get(id)?;
        Some((service, format!("{:016x}", fingerprint(&format!("{service:?}")))))
    }
}
