//! Query of the known datacenters, which is polled.

use std::time::Duration;

use crate::{
    Answer, Client, Query, QueryOptions, Result,
    query::{Mode, Position, QueryKey},
};

/// The names of all datacenters, sorted. Consul cannot block on them, so they are polled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Datacenters {
    interval: Duration,
}

impl Default for Datacenters {
    fn default() -> Self {
        Self { interval: Duration::from_secs(15) }
    }
}

impl Datacenters {
    /// Queries all datacenters, read every 15 s.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads at another interval, give or take a tenth.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }
}

impl Query for Datacenters {
    type Value = Vec<String>;

    fn key(&self) -> QueryKey {
        QueryKey::new("catalog.datacenters", &(self.interval,))
    }

    fn mode(&self) -> Mode {
        Mode::Polled(self.interval)
    }

    async fn fetch(
        &self,
        client: &Client,
        _position: &Position,
        _wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let answer = client.catalog_datacenters(&QueryOptions::default()).await?;
        Ok(answer.map(|mut names| {
            names.sort_unstable();
            names
        }))
    }
}
