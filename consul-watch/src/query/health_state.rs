//! Query of all checks in a state.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Scope, Subject, common_setters, is_local},
    types::{HealthCheck, HealthStatus},
};

/// The checks of all nodes and services that are in a state, sorted by node and check id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct HealthState {
    state: Option<HealthStatus>,
    options: QueryOptions,
}

impl HealthState {
    /// Checks in any state.
    pub fn any() -> Self {
        Self::default()
    }

    /// Checks in this state.
    pub fn of(state: HealthStatus) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Limits the query to checks for which this expression holds; Consul evaluates
    /// it.
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.options.filter = Some(expression.into());
        self
    }

    common_setters!();
}

impl Query for HealthState {
    type Value = Vec<HealthCheck>;

    fn key(&self) -> QueryKey {
        QueryKey::new(
            "health.state",
            &(self.state.as_ref().map(HealthStatus::as_str), self.options.canonical()),
        )
    }

    fn scope(&self) -> Scope {
        if is_local(&self.options) { Scope::Checks } else { Scope::Opaque }
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
        let answer =
            client.health_state(self.state.as_ref(), &self.options.at(position, wait)).await?;
        Ok(answer.map(|mut checks| {
            checks.sort_by(|a, b| (&a.node, &a.check_id).cmp(&(&b.node, &b.check_id)));
            checks
        }))
    }
}
