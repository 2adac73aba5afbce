//! Cluster peerings: calls of `/v1/peering`.

use http::StatusCode;
use secrecy::SecretString;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{Peering, PeeringEstablishRequest, PeeringToken, PeeringTokenRequest},
};

/// Connections to other clusters (Consul 1.13; older servers answer 404).
impl Client {
    /// Makes a token with which another cluster can connect, and a peering that waits for it.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn peering_token(&self, request: &PeeringTokenRequest) -> Result<SecretString> {
        let request = Request::post("peering.token", "/v1/peering/token").json(request);
        self.read::<PeeringToken>(request).await.map(|answer| answer.value.peering_token)
    }

    /// Connects to another cluster with a token from it.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn peering_establish(&self, request: &PeeringEstablishRequest) -> Result<()> {
        let request = Request::post("peering.establish", "/v1/peering/establish").json(request);
        self.send(request).await.map(drop)
    }

    /// The peering with this name; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn peering(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Peering>>> {
        let request = Request::get("peering.get", "/v1/peering").segment(name).query(options);
        let response = self.send(request.accept(StatusCode::NOT_FOUND)).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// Lists all peerings. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn peerings(&self, options: &QueryOptions) -> Result<Answer<Vec<Peering>>> {
        self.read_list(Request::get("peering.list", "/v1/peerings").query(options)).await
    }

    /// Begins to remove a peering. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn peering_delete(&self, name: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("peering.delete", "/v1/peering").segment(name);
        self.send(request.accept(StatusCode::NOT_FOUND).write(options)).await.map(drop)
    }
}
