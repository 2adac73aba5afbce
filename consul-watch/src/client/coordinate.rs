//! Network coordinates: calls of `/v1/coordinate/`.

use http::StatusCode;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::Request,
    types::{DatacenterCoordinates, NodeCoordinate},
};

/// Calls about the places of nodes in the space of round-trip times.
impl Client {
    /// The coordinates of the servers of all datacenters. Does not block.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn coordinate_datacenters(&self) -> Result<Vec<DatacenterCoordinates>> {
        self.read_list(Request::get("coordinate.datacenters", "/v1/coordinate/datacenters"))
            .await
            .map(|answer| answer.value)
    }

    /// The coordinates of all nodes. Blocks by index; they change every few seconds.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn coordinate_nodes(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<NodeCoordinate>>> {
        self.read_list(Request::get("coordinate.nodes", "/v1/coordinate/nodes").query(options))
            .await
    }

    /// The coordinates of one node, one for each network segment; none for a node that is not
    /// known or has none yet. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn coordinate_node(
        &self,
        node: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<NodeCoordinate>>> {
        let request = Request::get("coordinate.node", "/v1/coordinate/node")
            .segment(node)
            .query(options)
            .accept(StatusCode::NOT_FOUND);
        let response = self.send(request).await?;
        let found: Option<Option<Vec<NodeCoordinate>>> = super::present(&response)?;
        Ok(Answer::new(found.flatten().unwrap_or_default(), response.into_meta()))
    }

    /// Sets the coordinate of a node that has no agent.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn coordinate_update(
        &self,
        coordinate: &NodeCoordinate,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::put("coordinate.update", "/v1/coordinate/update").json(coordinate);
        self.send(request.write(options)).await.map(drop)
    }
}
