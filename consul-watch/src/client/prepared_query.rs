//! Prepared queries: calls of `/v1/query`.

use http::StatusCode;
use serde::Deserialize;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{PreparedQuery, PreparedQueryResult},
};

const PATH: &str = "/v1/query";

/// Options of carrying out a prepared query besides its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct ExecuteOptions {
    /// At most so many instances; 0 is all.
    pub limit: u64,
    /// `true` for what reaches the service through the mesh only.
    pub connect: bool,
    /// Options that every read takes; it does not block.
    pub query: QueryOptions,
}

/// Prepared queries. None of these calls blocks.
impl Client {
    /// Lists all prepared queries that the token may see.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_queries(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<PreparedQuery>>> {
        self.read_list(Request::get("query.list", PATH).query(options)).await
    }

    /// The prepared query with this id; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_query(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<PreparedQuery>>> {
        let request = Request::get("query.get", PATH).segment(id).query(options);
        let response = self.send(request.accept(StatusCode::NOT_FOUND)).await?;
        let found: Option<Option<Vec<PreparedQuery>>> = present(&response)?;
        let query = found.flatten().and_then(|queries| queries.into_iter().next());
        Ok(Answer::new(query, response.into_meta()))
    }

    /// Makes a prepared query and gives its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_query_create(
        &self,
        query: &PreparedQuery,
        options: &WriteOptions,
    ) -> Result<String> {
        self.created(Request::post("query.create", PATH).json(query).write(options)).await
    }

    /// Replaces the prepared query with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_query_update(
        &self,
        query: &PreparedQuery,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::put("query.update", PATH).segment(&query.id).json(query);
        self.send(request.write(options)).await.map(drop)
    }

    /// Removes a prepared query.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); Consul answers 500
    /// when there is none with this id.
    pub async fn prepared_query_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("query.delete", PATH).segment(id);
        self.send(request.write(options)).await.map(drop)
    }

    /// Carries out the prepared query with this id or name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_query_execute(
        &self,
        id_or_name: &str,
        options: &ExecuteOptions,
    ) -> Result<Answer<Option<PreparedQueryResult>>> {
        let mut request =
            Request::get("query.execute", PATH).segment(id_or_name).segment("execute");
        if options.limit > 0 {
            request = request.param("limit", options.limit.to_string());
        }
        if options.connect {
            request = request.param("connect", "true");
        }
        let request = request.query(&options.query).accept(StatusCode::NOT_FOUND);
        let response = self.send(request).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// Returns the prepared query that answers to this name, its template filled; `None` when
    /// there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn prepared_query_explain(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<PreparedQuery>>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Explained {
            query: PreparedQuery,
        }
        let request = Request::get("query.explain", PATH).segment(name).segment("explain");
        let request = request.query(options).accept(StatusCode::NOT_FOUND);
        let response = self.send(request).await?;
        let found: Option<Explained> = present(&response)?;
        Ok(Answer::new(found.map(|explained| explained.query), response.into_meta()))
    }
}
