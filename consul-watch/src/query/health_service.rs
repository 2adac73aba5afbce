//! Query of a service's instances with their health.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    client::HealthOptions,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
    types::ServiceEntry,
};

/// The instances of a service with their nodes and checks.
///
/// Instances are sorted by node and service id, and their tags by name. With
/// [`near`](HealthService::near) they keep Consul's order; a change of nothing
/// but the order is then no change.
///
/// With ACLs an empty result may mean "not allowed": see
/// [`QueryMeta::filtered_by_acls`](crate::QueryMeta::filtered_by_acls) of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct HealthService {
    name: String,
    connect: bool,
    passing: bool,
    tags: Vec<String>,
    options: QueryOptions,
}

impl HealthService {
    /// Queries all instances of a service, in whatever state.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            connect: false,
            passing: false,
            tags: Vec::new(),
            options: QueryOptions::default(),
        }
    }

    /// Asks for the instances that reach the service through the mesh: its proxies and native
    /// instances.
    pub fn connect(mut self) -> Self {
        self.connect = true;
        self
    }

    /// Limits the query to instances whose checks are all passing.
    pub fn passing(mut self) -> Self {
        self.passing = true;
        self
    }

    /// Limits the query to instances with this tag; several calls ask for all of
    /// them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Limits the query to instances for which this expression holds; Consul
    /// evaluates it.
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = Some(expression.into());
        self
    }

    /// Sorted by distance from this node; `_agent` is the agent's own.
    pub fn near(mut self, node: impl Into<String>) -> Self {
        self.options.near = Some(node.into());
        self
    }

    common_setters!();
}

impl Query for HealthService {
    type Value = Vec<ServiceEntry>;

    fn key(&self) -> QueryKey {
        let kind = if self.connect { "health.connect" } else { "health.service" };
        let mut tags = self.tags.clone();
        tags.sort_unstable();
        QueryKey::new(kind, &(&self.name, self.passing, tags, self.options.canonical()))
    }

    fn scope(&self) -> Scope {
        if self.connect || !is_local(&self.options) {
            Scope::Opaque
        } else {
            Scope::Service(self.name.clone())
        }
    }

    fn same(&self, old: &Self::Value, new: &Self::Value) -> bool {
        if self.options.near.is_none() || old.len() != new.len() {
            return old == new;
        }
        // The order is that of round-trip times then, and says nothing about the instances: it
        // changes with the nodes' coordinates.
        let sorted = |entries: &'_ Vec<ServiceEntry>| {
            let mut entries: Vec<ServiceEntry> = entries.clone();
            sort(&mut entries);
            entries
        };
        sorted(old) == sorted(new)
    }

    fn subject(&self) -> Subject<'_> {
        Subject::service(&self.name).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let options = HealthOptions {
            passing: self.passing,
            tags: self.tags.clone(),
            query: self.options.at(position, wait),
        };
        let answer = if self.connect {
            client.health_connect(&self.name, &options).await?
        } else {
            client.health_service(&self.name, &options).await?
        };
        Ok(answer.map(|mut entries| {
            for entry in &mut entries {
                // Tags are a set, which Consul shows in the order of the registration.
                entry.service.tags.sort_unstable();
            }
            if self.options.near.is_none() {
                sort(&mut entries);
            }
            compact(&mut entries);
            entries
        }))
    }
}

/// Gives back room that decoding left: a list grows to four at least, and most have one or a few,
/// which are kept for as long as nothing changes: 30 MiB for 10,000 services of one instance.
fn compact(entries: &mut Vec<ServiceEntry>) {
    for entry in entries.iter_mut() {
        entry.service.tags.shrink_to_fit();
        for check in &mut entry.checks {
            check.service_tags.shrink_to_fit();
        }
        entry.checks.shrink_to_fit();
    }
    entries.shrink_to_fit();
}

fn sort(entries: &mut [ServiceEntry]) {
    entries.sort_by(|a, b| (&a.node.name, &a.service.id).cmp(&(&b.node.name, &b.service.id)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{HealthCheck, HealthStatus};

    #[test]
    fn what_is_kept_has_no_spare_room() {
        let check = HealthCheck::of_service("a", "c", HealthStatus::Passing);
        let mut entry = ServiceEntry { checks: vec![check], ..ServiceEntry::default() };
        entry.checks.reserve(3);
        let mut entries = vec![entry];
        entries.reserve(3);
        compact(&mut entries);
        assert_eq!((entries.capacity(), entries[0].checks.capacity()), (1, 1));
    }

    #[test]
    fn keys_hold_everything_that_changes_the_result() {
        let web = || HealthService::new("web");
        let variants = [
            web(),
            web().connect(),
            web().passing(),
            web().tag("a"),
            web().tag("a").tag("b"),
            web().filter("x"),
            web().near("_agent"),
            web().datacenter("dc2"),
            web().namespace("dc2"),
            HealthService::new("web2"),
        ];
        for (at, one) in variants.iter().enumerate() {
            for (other_at, other) in variants.iter().enumerate() {
                assert_eq!(one.key() == other.key(), at == other_at, "{one:?} {other:?}");
            }
        }
        assert_eq!(web().tag("a").tag("b").key(), web().tag("b").tag("a").key());
    }

    #[tokio::test]
    async fn what_is_kept_has_no_room_to_spare() {
        let consul = crate::testing::TestConsul::new();
        for id in ["web-1", "web-2"] {
            consul.set_instance("web", id, "10.0.0.1", 80, HealthStatus::Passing);
        }
        let query = HealthService::new("web");
        let answer = query.fetch(&consul.client(), &Position::Start, Duration::ZERO).await.unwrap();
        assert_eq!((answer.value.len(), answer.value.capacity()), (2, 2));
        for entry in &answer.value {
            assert_eq!(entry.checks.capacity(), entry.checks.len());
        }
    }

    #[test]
    fn what_leaves_the_local_datacenter_has_no_scope() {
        assert_eq!(HealthService::new("web").scope(), Scope::Service("web".into()));
        assert_eq!(HealthService::new("web").datacenter("dc2").scope(), Scope::Opaque);
    }

    #[test]
    fn only_with_near_the_order_does_not_matter() {
        let entry = |id: &str| ServiceEntry {
            service: crate::types::Service::new("web", id),
            ..ServiceEntry::default()
        };
        let (old, new) = (vec![entry("a"), entry("b")], vec![entry("b"), entry("a")]);
        assert!(HealthService::new("web").near("_agent").same(&old, &new));
        assert!(!HealthService::new("web").same(&old, &new));
        assert!(
            !HealthService::new("web").near("_agent").same(&old, &vec![entry("a"), entry("c")])
        );
    }
}
