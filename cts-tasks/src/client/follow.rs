//! Follows what happens to tasks.

use bytes::Bytes;
use http::Method;

use super::{
    Client, Error, Result,
    exchange::{Call, Exchange},
};
use crate::StreamEvent;

const OPERATION: &str = "follow events";

/// The selection of events that are followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFilter {
    /// Only those of this task; of every task by default.
    pub task: Option<String>,
}

impl EventFilter {
    /// Only the events of one task, which need not exist yet.
    pub fn of_task(name: impl Into<String>) -> Self {
        Self { task: Some(name.into()) }
    }
}

/// Follows what happens to tasks, from the time of [`Following::begin`].
#[derive(Debug)]
pub struct Following {
    exchange: Exchange,
    filter: EventFilter,
    /// The id of the newest event that was seen.
    after: Option<u64>,
}

impl Client {
    /// Follows what happens to tasks: runs that end, plans that wait, progress of drivers.
    pub fn follow(&self, filter: EventFilter) -> Following {
        Following { exchange: self.exchange.clone(), filter, after: None }
    }
}

impl Following {
    /// Begins now: what happens from here on is seen by [`Following::next`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with status 404 by a server without events; else see [`Error`].
    pub async fn begin(&mut self) -> Result<()> {
        let answer = self.exchange.fetch(self.call("wait", "false")).await?;
        self.take(&answer).map(drop)
    }

    /// Waits until something has happened, and returns all that has, the oldest first.
    ///
    /// # Errors
    ///
    /// See [`Error`]; after one that [may be gone later](Error::is_retryable) it can be
    /// called again, and goes on where it was.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Vec<StreamEvent>> {
        loop {
            let answer = self.exchange.fetch(self.call("batch", "true")).await?;
            let events = self.take(&answer)?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    fn call(&self, name: &str, value: &str) -> Call {
        let mut call = Call::new(OPERATION, Method::GET, "/v1/events").parameter(name, value);
        if let Some(task) = &self.filter.task {
            call = call.parameter("task", task);
        }
        if let Some(after) = self.after {
            call = call.parameter("after", &after.to_string());
        }
        call
    }

    /// Reads a stream that has ended.
    fn take(&mut self, answer: &Bytes) -> Result<Vec<StreamEvent>> {
        let text = std::str::from_utf8(answer)
            .map_err(|error| Error::answer(OPERATION, error.to_string()))?;
        let mut events = Vec::new();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                self.after = id.parse().ok().or(self.after);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let event = serde_json::from_str(data)
                    .map_err(|error| Error::answer(OPERATION, error.to_string()))?;
                events.push(event);
            }
        }
        Ok(events)
    }
}
