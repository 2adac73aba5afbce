//! Query of all nodes.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
    types::Node,
};

/// All nodes, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct CatalogNodes {
    options: QueryOptions,
}

impl CatalogNodes {
    /// Queries all nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the query to nodes for which this expression holds; Consul evaluates
    /// it.
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = Some(expression.into());
        self
    }

    /// Limits the query to nodes with this metadata; several calls ask for all of
    /// it.
    pub fn node_meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.node_meta.push((key.into(), value.into()));
        self
    }

    common_setters!();
}

impl Query for CatalogNodes {
    type Value = Vec<Node>;

    fn key(&self) -> QueryKey {
        QueryKey::new("catalog.nodes", &(self.options.canonical(),))
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::Nodes } else { Scope::Opaque }
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
        let answer = client.catalog_nodes(&self.options.at(position, wait)).await?;
        Ok(answer.map(|mut nodes| {
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            nodes
        }))
    }
}
