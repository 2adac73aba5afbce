//! Health reads: calls of `/v1/health/`, and what narrows them.

use crate::{
    Answer, Client, QueryOptions, Result,
    client::Request,
    types::{HealthCheck, HealthStatus, ServiceEntry},
};

/// Options that a health query takes besides [`QueryOptions`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct HealthOptions {
    /// `true` for instances whose checks are all passing only.
    pub passing: bool,
    /// Tags, all of which an instance needs to have.
    pub tags: Vec<String>,
    /// Options that every read takes.
    pub query: QueryOptions,
}

impl From<QueryOptions> for HealthOptions {
    fn from(query: QueryOptions) -> Self {
        Self { query, ..Self::default() }
    }
}

/// Health.
impl Client {
    /// Instances of a service with their nodes and checks; none for a name
    /// that is not known. Blocks by index.
    ///
    /// With ACLs an empty answer may mean "not allowed": see
    /// [`QueryMeta::filtered_by_acls`](crate::QueryMeta::filtered_by_acls).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_service(
        &self,
        name: &str,
        options: &HealthOptions,
    ) -> Result<Answer<Vec<ServiceEntry>>> {
        self.read_list(instances("health.service", "/v1/health/service", name, options)).await
    }

    /// Instances that can be reached through the mesh for a service: its
    /// proxies and native instances. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_connect(
        &self,
        name: &str,
        options: &HealthOptions,
    ) -> Result<Answer<Vec<ServiceEntry>>> {
        self.read_list(instances("health.connect", "/v1/health/connect", name, options)).await
    }

    /// Checks of a service's instances. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_checks(
        &self,
        service: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<HealthCheck>>> {
        self.read_list(
            Request::get("health.checks", "/v1/health/checks").segment(service).query(options),
        )
        .await
    }

    /// Checks of a node and of the services on it. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_node(
        &self,
        node: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<HealthCheck>>> {
        self.read_list(Request::get("health.node", "/v1/health/node").segment(node).query(options))
            .await
    }

    /// Checks in a state; `None` is any. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_state(
        &self,
        state: Option<&HealthStatus>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<HealthCheck>>> {
        let state = state.map_or("any", HealthStatus::as_str);
        self.read_list(
            Request::get("health.state", "/v1/health/state").segment(state).query(options),
        )
        .await
    }
}

fn instances(operation: &'static str, path: &str, name: &str, options: &HealthOptions) -> Request {
    let mut request =
        Request::get(operation, path).segment(name).flag_if("passing", options.passing);
    for tag in &options.tags {
        request = request.param("tag", tag.as_str());
    }
    request.query(&options.query)
}
