//! Calls of `/v1/operator/`: Raft configuration, leadership and autopilot.

use http::StatusCode;

use crate::{
    Client, QueryOptions, Result,
    client::Request,
    types::{AutopilotHealth, RaftConfiguration},
};

/// The servers. None of these calls blocks.
impl Client {
    /// The servers that hold Consul's log.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn operator_raft_configuration(
        &self,
        options: &QueryOptions,
    ) -> Result<RaftConfiguration> {
        let request =
            Request::get("operator.raft.configuration", "/v1/operator/raft/configuration");
        self.read(request.query(options)).await.map(|answer| answer.value)
    }

    /// Takes a server out of the log's configuration, by its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); Consul answers 500
    /// when there is none with this id.
    pub async fn operator_raft_remove_peer(&self, id: &str) -> Result<()> {
        let request = Request::delete("operator.raft.remove-peer", "/v1/operator/raft/peer");
        self.send(request.param("id", id)).await.map(drop)
    }

    /// Lets another server lead (Consul 1.15): the one with this id, or any.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn operator_raft_transfer_leader(&self, id: Option<&str>) -> Result<()> {
        let mut request =
            Request::post("operator.raft.transfer-leader", "/v1/operator/raft/transfer-leader");
        if let Some(id) = id {
            request = request.param("id", id);
        }
        self.send(request).await.map(drop)
    }

    /// Returns the health of the servers. That they are not in order, which Consul answers with
    /// status 429, is no error here.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn operator_autopilot_health(
        &self,
        options: &QueryOptions,
    ) -> Result<AutopilotHealth> {
        let request = Request::get("operator.autopilot.health", "/v1/operator/autopilot/health")
            .query(options)
            .accept_json(StatusCode::TOO_MANY_REQUESTS);
        self.read(request).await.map(|answer| answer.value)
    }
}
