//! Query of the names and tags of all services.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
};

/// The names of all services, each with its sorted tags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct CatalogServices {
    options: QueryOptions,
}

impl CatalogServices {
    /// Queries all services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the query to services on nodes with this metadata; several calls ask
    /// for all of it.
    pub fn node_meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.node_meta.push((key.into(), value.into()));
        self
    }

    /// Limits the query to services with an instance for which this expression
    /// holds; Consul evaluates it (1.14; older servers ignore it).
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = Some(expression.into());
        self
    }

    common_setters!();
}

impl Query for CatalogServices {
    type Value = BTreeMap<String, Vec<String>>;

    fn key(&self) -> QueryKey {
        QueryKey::new("catalog.services", &(self.options.canonical(),))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::CatalogServices } else { Scope::Opaque }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::default().within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let answer = client.catalog_services(&self.options.at(position, wait)).await?;
        Ok(answer.map(|mut services| {
            for tags in services.values_mut() {
                tags.sort_unstable();
            }
            services
        }))
    }
}
