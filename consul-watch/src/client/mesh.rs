//! Reads of the mesh: its proxies, gateways, discovery chains and exported services.

use serde::Deserialize;

use crate::{
    Answer, Client, QueryOptions, Result,
    client::{HealthOptions, Request},
    types::{
        CatalogService, DiscoveryChain, DiscoveryChainOverride, ExportedService, GatewayService,
        Node, Service, ServiceEntry, nullable,
    },
};

/// The mesh and its gateways, as the catalog knows them.
impl Client {
    /// Returns the instances that reach a service through the mesh: its proxies and native
    /// instances, without their checks. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_connect(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<CatalogService>>> {
        let request = Request::get("catalog.connect", "/v1/catalog/connect").segment(name);
        self.read_list(request.query(options)).await
    }

    /// Returns a node and a list of its services; `None` for a name that is not known. Unlike
    /// [`Client::catalog_node`] it can look into all Enterprise namespaces. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_node_services(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<(Node, Vec<Service>)>>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Found {
            node: Option<Node>,
            #[serde(default, deserialize_with = "nullable")]
            services: Vec<Service>,
        }
        let request =
            Request::get("catalog.node-services", "/v1/catalog/node-services").segment(name);
        let answer: Answer<Option<Found>> = self.read(request.query(options)).await?;
        Ok(answer.map(|found| found.and_then(|found| Some((found.node?, found.services)))))
    }

    /// The services that a gateway stands for. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn catalog_gateway_services(
        &self,
        gateway: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<GatewayService>>> {
        let request = Request::get("catalog.gateway-services", "/v1/catalog/gateway-services");
        self.read_list(request.segment(gateway).query(options)).await
    }

    /// The ingress gateways that lead to a service. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn health_ingress(
        &self,
        name: &str,
        options: &HealthOptions,
    ) -> Result<Answer<Vec<ServiceEntry>>> {
        let request = Request::get("health.ingress", "/v1/health/ingress")
            .segment(name)
            .flag_if("passing", options.passing);
        self.read_list(request.query(&options.query)).await
    }

    /// Returns the routing, splitting and resolution of connections to a service, as seen from a
    /// datacenter (`None` is the asked one) and with what a proxy's own settings change. Blocks
    /// by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn discovery_chain(
        &self,
        service: &str,
        compile_datacenter: Option<&str>,
        changes: &DiscoveryChainOverride,
        options: &QueryOptions,
    ) -> Result<Answer<DiscoveryChain>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Compiled {
            chain: DiscoveryChain,
        }
        const PATH: &str = "/v1/discovery-chain";
        let mut request = if changes.is_empty() {
            Request::get("discovery-chain", PATH)
        } else {
            Request::post("discovery-chain", PATH).json(changes)
        };
        request = request.segment(service);
        if let Some(name) = compile_datacenter {
            request = request.param("compile-dc", name);
        }
        let answer: Answer<Compiled> = self.read(request.query(options)).await?;
        Ok(answer.map(|compiled| compiled.chain))
    }

    /// The services that other clusters or partitions may use (Consul 1.17.3). Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn exported_services(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<ExportedService>>> {
        self.read_list(Request::get("exported-services", "/v1/exported-services").query(options))
            .await
    }
}
