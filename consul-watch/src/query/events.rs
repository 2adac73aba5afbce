//! Query of user events.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Mode, Position, QueryKey, Subject, common_setters},
    types::UserEvent,
};

/// The last user events that the agent has received, at most 256, the oldest first.
///
/// A snapshot holds all of them, so that a slow or late subscriber misses none that the agent
/// still has. [`new_events`](crate::types::new_events) with the index of the snapshot before
/// gives the new ones, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Events {
    name: Option<String>,
    options: QueryOptions,
}

impl Events {
    /// Events of any name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queries events with this name only.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    common_setters!();
}

impl Query for Events {
    type Value = Vec<UserEvent>;

    fn key(&self) -> QueryKey {
        QueryKey::new("event.list", &(&self.name, self.options.canonical()))
    }

    fn mode(&self) -> Mode {
        Mode::Event
    }

    fn subject(&self) -> Subject<'_> {
        Subject { object: self.name.as_deref(), ..Subject::default() }
            .within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        client.event_list(self.name.as_deref(), &self.options.at(position, wait)).await
    }
}
