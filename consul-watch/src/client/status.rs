//! Calls of `/v1/status/`: the Raft leader and its peers.

use crate::{Client, Result, client::Request};

/// The cluster.
impl Client {
    /// Address of the leader, `None` while there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn status_leader(&self) -> Result<Option<String>> {
        let answer =
            self.read::<String>(Request::get("status.leader", "/v1/status/leader")).await?;
        Ok(Some(answer.value).filter(|leader| !leader.is_empty()))
    }

    /// Addresses of the servers.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn status_peers(&self) -> Result<Vec<String>> {
        self.read_list(Request::get("status.peers", "/v1/status/peers"))
            .await
            .map(|answer| answer.value)
    }
}
