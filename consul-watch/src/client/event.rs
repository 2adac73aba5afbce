//! User events: calls of `/v1/event/`.

use bytes::Bytes;

use crate::{Answer, Client, QueryOptions, Result, client::Request, types::UserEvent};

/// Whom a user event is meant for. The default is every agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EventOptions {
    /// Datacenter; `None` is the client's own.
    pub datacenter: Option<String>,
    /// Regular expression that the node name of an agent has to match.
    pub node: Option<String>,
    /// Regular expression that a service of an agent has to match.
    pub service: Option<String>,
    /// Regular expression that a tag of the matching service has to match. Needs
    /// `service`.
    pub tag: Option<String>,
}

/// User events: small messages that gossip carries to all agents.
impl Client {
    /// Sends a user event. Name and payload are at most about 512 bytes together; delivery is
    /// not certain.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn event_fire(
        &self,
        name: &str,
        payload: impl Into<Bytes>,
        options: &EventOptions,
    ) -> Result<UserEvent> {
        let request = Request::put("event.fire", "/v1/event/fire")
            .segment(name)
            .param_if("dc", options.datacenter.as_ref())
            .param_if("node", options.node.as_ref())
            .param_if("service", options.service.as_ref())
            .param_if("tag", options.tag.as_ref())
            .bytes(payload.into());
        self.read(request).await.map(|answer| answer.value)
    }

    /// The last events that the agent has received, at most 256, the oldest first; those with
    /// this name, or all. Blocks until the index is another one: it has no order.
    ///
    /// [`new_events`](crate::types::new_events) tells which of them are new.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn event_list(
        &self,
        name: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<UserEvent>>> {
        let mut request = Request::get("event.list", "/v1/event/list");
        if let Some(name) = name {
            request = request.param("name", name);
        }
        self.read_list(request.query(options)).await
    }
}
