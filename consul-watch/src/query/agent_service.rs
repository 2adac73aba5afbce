//! Query of a service of the local agent, which blocks on a hash of its content.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Mode, Position, QueryKey, Subject},
    types,
};

/// A service of the local agent, by id; `None` while it has none with this id.
///
/// It blocks by content hash. While the service is absent there is nothing to
/// block on, and the agent is asked at the watcher's poll interval.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct AgentService {
    id: String,
}

impl AgentService {
    /// The service with this id.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into() }
    }
}

impl Query for AgentService {
    type Value = Option<types::AgentService>;

    fn key(&self) -> QueryKey {
        QueryKey::new("agent.service", &(&self.id,))
    }

    fn mode(&self) -> Mode {
        Mode::Hash
    }

    fn subject(&self) -> Subject<'_> {
        Subject::object(&self.id)
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client.agent_service(&self.id, &QueryOptions::default().at(position, wait)).await
    }
}
