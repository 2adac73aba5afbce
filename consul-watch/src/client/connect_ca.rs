//! Certificates of the mesh: roots, leaves and the CA's configuration.

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::Request,
    types::{Authorization, AuthorizeRequest, CaConfiguration, CaRoots, ConnectLeaf},
};

/// The mesh's certificates.
impl Client {
    /// The authorities that the mesh trusts, as the servers know them. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn connect_ca_roots(&self, options: &QueryOptions) -> Result<Answer<CaRoots>> {
        self.read(Request::get("connect.ca.roots", "/v1/connect/ca/roots").query(options)).await
    }

    /// The roots of [`Client::connect_ca_roots`] in one PEM bundle (Consul 1.8.6).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn connect_ca_roots_pem(&self, options: &QueryOptions) -> Result<Answer<String>> {
        let request = Request::get("connect.ca.roots", "/v1/connect/ca/roots").param("pem", "true");
        let response = self.send(request.query(options)).await?;
        let text = String::from_utf8_lossy(response.body()).into_owned();
        Ok(Answer::new(text, response.into_meta()))
    }

    /// The authorities that the mesh trusts, from the agent's cache. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_connect_ca_roots(&self, options: &QueryOptions) -> Result<Answer<CaRoots>> {
        let request = Request::get("agent.connect.ca.roots", "/v1/agent/connect/ca/roots");
        self.read(request.query(options)).await
    }

    /// A certificate for a service, with its key. The agent keeps it, and makes a new one in
    /// time. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_connect_ca_leaf(
        &self,
        service: &str,
        options: &QueryOptions,
    ) -> Result<Answer<ConnectLeaf>> {
        let request = Request::get("agent.connect.ca.leaf", "/v1/agent/connect/ca/leaf");
        self.read(request.segment(service).query(options)).await
    }

    /// Asks the agent whether a connection may be made.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_connect_authorize(
        &self,
        connection: &AuthorizeRequest,
    ) -> Result<Authorization> {
        let request = Request::post("agent.connect.authorize", "/v1/agent/connect/authorize");
        self.read(request.json(connection)).await.map(|answer| answer.value)
    }

    /// Returns the settings by which certificates are made.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn connect_ca_configuration(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<CaConfiguration>> {
        let request = Request::get("connect.ca.configuration", "/v1/connect/ca/configuration");
        self.read(request.query(options)).await
    }

    /// Changes how certificates are made. Another provider, or another root, rotates the
    /// mesh's certificates.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn connect_ca_set_configuration(
        &self,
        configuration: &CaConfiguration,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::put("connect.ca.set", "/v1/connect/ca/configuration");
        self.send(request.json(configuration).write(options)).await.map(drop)
    }
}
