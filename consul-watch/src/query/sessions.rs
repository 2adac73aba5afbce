//! Queries of sessions: all, those of a node, and one.

use std::time::Duration;

use super::{
    Scope,
    simple::{named_query, plain_query},
};
use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Position, QueryKey, Subject, common_setters},
    types,
};

plain_query! {
    /// All sessions, sorted by id.
    Sessions -> Vec<types::Session>, "session.list", session_list,
    |sessions| sessions.sort_by(|a, b| a.id.cmp(&b.id))
}

named_query! {
    /// The sessions of a node, sorted by id.
    NodeSessions(
        /// The node with this name.
        node
    ) -> Vec<types::Session>, "session.node", |_node| Scope::Opaque,
    |client, options| client.session_node(node, options),
    |sessions| sessions.sort_by(|a, b| a.id.cmp(&b.id))
}

/// A session; `None` when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct SessionInfo {
    id: types::SessionId,
    options: QueryOptions,
}

impl SessionInfo {
    /// The session with this id.
    pub fn new(id: types::SessionId) -> Self {
        Self { id, options: QueryOptions::default() }
    }

    common_setters!();
}

impl Query for SessionInfo {
    type Value = Option<types::Session>;

    fn key(&self) -> QueryKey {
        QueryKey::new("session.info", &(self.id.as_str(), self.options.canonical()))
    }

    fn subject(&self) -> Subject<'_> {
        Subject::object(self.id.as_str()).within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client.session_info(&self.id, &self.options.at(position, wait)).await
    }
}
