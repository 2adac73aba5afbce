//! `CatalogApi`: reads and writes of `/v1/catalog/`, as a trait that other crates take.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{
    Answer, Client, QueryOptions, Result,
    client::{Request, accepted},
    types::{
        CatalogDeregistration, CatalogNode, CatalogRegistration, CatalogService, Node, Service,
    },
};

/// The catalog, for those who need nothing else of Consul.
#[async_trait]
pub trait CatalogApi: std::fmt::Debug + Send + Sync + 'static {
    /// Service names with their tags.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_services(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<BTreeMap<String, Vec<String>>>>;

    /// Instances of a service; none for a name that is not known.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_service(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<CatalogService>>>;

    /// Lists all nodes.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_nodes(&self, options: &QueryOptions) -> Result<Answer<Vec<Node>>>;

    /// Returns a node and its services; `None` for a name that is not known.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_node(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<CatalogNode>>>;

    /// Returns a node and its services as a list; `None` for a name that is not known.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_node_services(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<(Node, Vec<Service>)>>>;

    /// Puts a node, and perhaps a service and checks, into the catalog.
    /// Doing it twice changes nothing.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_register(&self, registration: &CatalogRegistration) -> Result<()>;

    /// Takes a node, service or check out of the catalog. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn catalog_deregister(&self, deregistration: &CatalogDeregistration) -> Result<()>;
}

#[async_trait]
impl CatalogApi for Client {
    async fn catalog_services(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<BTreeMap<String, Vec<String>>>> {
        Self::catalog_services(self, options).await
    }

    async fn catalog_service(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<CatalogService>>> {
        Self::catalog_service(self, name, options).await
    }

    async fn catalog_nodes(&self, options: &QueryOptions) -> Result<Answer<Vec<Node>>> {
        Self::catalog_nodes(self, options).await
    }

    async fn catalog_node(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<CatalogNode>>> {
        Self::catalog_node(self, name, options).await
    }

    async fn catalog_node_services(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<(Node, Vec<Service>)>>> {
        Self::catalog_node_services(self, name, options).await
    }

    async fn catalog_register(&self, registration: &CatalogRegistration) -> Result<()> {
        Self::catalog_register(self, registration).await
    }

    async fn catalog_deregister(&self, deregistration: &CatalogDeregistration) -> Result<()> {
        Self::catalog_deregister(self, deregistration).await
    }
}

/// The catalog.
impl Client {
    /// Service names with their tags. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_services(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<BTreeMap<String, Vec<String>>>> {
        let answer: Answer<Option<BTreeMap<String, Option<Vec<String>>>>> = self
            .read(Request::get("catalog.services", "/v1/catalog/services").query(options))
            .await?;
        Ok(answer.map(|services| {
            services
                .unwrap_or_default()
                .into_iter()
                .map(|(name, tags)| (name, tags.unwrap_or_default()))
                .collect()
        }))
    }

    /// Instances of a service, without their checks; none for a name that is
    /// not known. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_service(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<CatalogService>>> {
        self.read_list(
            Request::get("catalog.service", "/v1/catalog/service").segment(name).query(options),
        )
        .await
    }

    /// Lists all nodes. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_nodes(&self, options: &QueryOptions) -> Result<Answer<Vec<Node>>> {
        self.read_list(Request::get("catalog.nodes", "/v1/catalog/nodes").query(options)).await
    }

    /// Returns a node and its services; `None` for a name that is not known. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_node(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<CatalogNode>>> {
        self.read(Request::get("catalog.node", "/v1/catalog/node").segment(name).query(options))
            .await
    }

    /// Lists all datacenters, the nearest first. Does not block.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_datacenters(&self, options: &QueryOptions) -> Result<Answer<Vec<String>>> {
        self.read_list(
            Request::get("catalog.datacenters", "/v1/catalog/datacenters").query(options),
        )
        .await
    }

    /// Puts a node, and perhaps a service and checks, into the catalog.
    /// Doing it twice changes nothing.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_register(&self, registration: &CatalogRegistration) -> Result<()> {
        self.send(Request::put("catalog.register", "/v1/catalog/register").json(registration))
            .await
            .map(drop)
    }

    /// Takes a node, service or check out of the catalog. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_deregister(&self, deregistration: &CatalogDeregistration) -> Result<()> {
        let request =
            Request::put("catalog.deregister", "/v1/catalog/deregister").json(deregistration);
        self.send(request).await.map(drop)
    }

    /// Reads a list that may be `null`.
    pub(super) async fn read_list<T: serde::de::DeserializeOwned>(
        &self,
        request: Request,
    ) -> Result<Answer<Vec<T>>> {
        let answer: Answer<Option<Vec<T>>> = self.read(request).await?;
        Ok(answer.map(Option::unwrap_or_default))
    }

    /// Sends a write that answers whether it took effect.
    pub(super) async fn decide(&self, request: Request) -> Result<bool> {
        accepted(&self.send(request).await?)
    }
}
