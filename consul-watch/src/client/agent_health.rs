//! Health of the agent's own services: `/v1/agent/health/service/`.

use http::StatusCode;
use serde::Deserialize;

use crate::{
    Client, Result,
    client::Request,
    types::{AgentService, HealthCheck, HealthStatus, nullable},
};

/// Health of a service of the local agent, by its own checks and its node's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServiceHealth {
    /// The worst state of its checks.
    pub aggregated_status: HealthStatus,
    /// The instance.
    pub service: AgentService,
    /// Checks of the instance and of its node.
    #[serde(default, deserialize_with = "nullable")]
    pub checks: Vec<HealthCheck>,
}

/// The health of the local agent's services. Does not block.
///
/// Consul says the state with the status too, 429 for warning and 503 for critical: these are
/// answers here.
impl Client {
    /// Returns the health of the instance with this id; `None` when the agent has none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_health_service_by_id(&self, id: &str) -> Result<Option<ServiceHealth>> {
        let response = self.send(health("/v1/agent/health/service/id", id)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            // The body is an instance that is not there and critical.
            return Ok(None);
        }
        response.json().map(Some)
    }

    /// Returns the health of each instance of a service; none when the agent has none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_health_service_by_name(&self, name: &str) -> Result<Vec<ServiceHealth>> {
        self.read_list(health("/v1/agent/health/service/name", name))
            .await
            .map(|answer| answer.value)
    }
}

fn health(path: &str, name: &str) -> Request {
    Request::get("agent.health.service", path)
        .segment(name)
        .accept_json(StatusCode::NOT_FOUND)
        .accept_json(StatusCode::TOO_MANY_REQUESTS)
        .accept_json(StatusCode::SERVICE_UNAVAILABLE)
}
