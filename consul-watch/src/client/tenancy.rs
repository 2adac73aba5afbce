//! `TenancyApi`: Enterprise namespaces and partitions, as a trait that other crates take.

use async_trait::async_trait;
use http::StatusCode;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{Namespace, Partition},
};

/// Enterprise partitions and namespaces, for those who need nothing else of Consul.
///
/// Servers without them answer 404, which is an [error](crate::Error::is_not_found) of every call
/// but [`namespace`](Self::namespace).
#[async_trait]
pub trait TenancyApi: std::fmt::Debug + Send + Sync + 'static {
    /// Lists all namespaces of a partition.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn namespaces(&self, options: &QueryOptions) -> Result<Answer<Vec<Namespace>>>;

    /// The namespace with this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn namespace(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Namespace>>>;

    /// Makes a namespace.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn namespace_create(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace>;

    /// Replaces the namespace with the name of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn namespace_update(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace>;

    /// Lists all partitions.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn partitions(&self, options: &QueryOptions) -> Result<Answer<Vec<Partition>>>;

    /// Makes a partition.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn partition_create(
        &self,
        partition: &Partition,
        options: &WriteOptions,
    ) -> Result<Partition>;
}

#[async_trait]
impl TenancyApi for Client {
    async fn namespaces(&self, options: &QueryOptions) -> Result<Answer<Vec<Namespace>>> {
        Self::namespaces(self, options).await
    }

    async fn namespace(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Namespace>>> {
        Self::namespace(self, name, options).await
    }

    async fn namespace_create(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace> {
        Self::namespace_create(self, namespace, options).await
    }

    async fn namespace_update(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace> {
        Self::namespace_update(self, namespace, options).await
    }

    async fn partitions(&self, options: &QueryOptions) -> Result<Answer<Vec<Partition>>> {
        Self::partitions(self, options).await
    }

    async fn partition_create(
        &self,
        partition: &Partition,
        options: &WriteOptions,
    ) -> Result<Partition> {
        Self::partition_create(self, partition, options).await
    }
}

/// Enterprise partitions and namespaces.
///
/// Source: Consul's HTTP API, `api/namespace.go` and `api/partition.go` at 1.21.
impl Client {
    /// Lists all namespaces of a partition. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [not
    /// found](crate::Error::is_not_found) without Enterprise.
    pub async fn namespaces(&self, options: &QueryOptions) -> Result<Answer<Vec<Namespace>>> {
        self.read_list(Request::get("namespaces", "/v1/namespaces").query(options)).await
    }

    /// The namespace with this name; `None` when there is none, as always without Enterprise.
    /// Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn namespace(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Namespace>>> {
        let request = Request::get("namespace", "/v1/namespace").segment(name).query(options);
        let response = self.send(request.accept(StatusCode::NOT_FOUND)).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// Makes a namespace.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [not
    /// found](crate::Error::is_not_found) without Enterprise.
    pub async fn namespace_create(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace> {
        let request = Request::put("namespace.create", "/v1/namespace").json(namespace);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Replaces the namespace with the name of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [not
    /// found](crate::Error::is_not_found) when there is none.
    pub async fn namespace_update(
        &self,
        namespace: &Namespace,
        options: &WriteOptions,
    ) -> Result<Namespace> {
        let request = Request::put("namespace.update", "/v1/namespace").segment(&namespace.name);
        self.read(request.json(namespace).write(options)).await.map(|answer| answer.value)
    }

    /// Lists all partitions. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [not
    /// found](crate::Error::is_not_found) without Enterprise.
    pub async fn partitions(&self, options: &QueryOptions) -> Result<Answer<Vec<Partition>>> {
        self.read_list(Request::get("partitions", "/v1/partitions").query(options)).await
    }

    /// Makes a partition.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [not
    /// found](crate::Error::is_not_found) without Enterprise.
    pub async fn partition_create(
        &self,
        partition: &Partition,
        options: &WriteOptions,
    ) -> Result<Partition> {
        let request = Request::put("partition.create", "/v1/partition").json(partition);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }
}
