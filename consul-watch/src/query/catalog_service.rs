//! Query of a service's instances in the catalog, without their health.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
    types,
};

/// The instances of a service without their checks, sorted by node and service
/// id, and their tags by name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct CatalogService {
    name: String,
    options: QueryOptions,
}

impl CatalogService {
    /// Queries all instances of a service.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), options: QueryOptions::default() }
    }

    /// Limits the query to instances for which this expression holds; Consul
    /// evaluates it.
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = Some(expression.into());
        self
    }

    common_setters!();
}

impl Query for CatalogService {
    type Value = Vec<types::CatalogService>;

    fn key(&self) -> QueryKey {
        QueryKey::new("catalog.service", &(&self.name, self.options.canonical()))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::Service(self.name.clone()) } else { Scope::Opaque }
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
        let answer = client.catalog_service(&self.name, &self.options.at(position, wait)).await?;
        Ok(answer.map(|mut instances| {
            for instance in &mut instances {
                instance.service_tags.sort_unstable();
            }
            instances.sort_by(|a, b| (&a.node, &a.service_id).cmp(&(&b.node, &b.service_id)));
            instances
        }))
    }
}
