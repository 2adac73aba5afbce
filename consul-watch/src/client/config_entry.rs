//! Configuration entries: calls of `/v1/config`.

use http::StatusCode;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::ConfigEntry,
};

/// Central configuration entries.
impl Client {
    /// Returns an entry; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn config_entry(
        &self,
        kind: &str,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<ConfigEntry>>> {
        let request = Request::get("config.get", "/v1/config")
            .segment(kind)
            .segment(name)
            .accept(StatusCode::NOT_FOUND)
            .query(options);
        let response = self.send(request).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// Lists all entries of a kind. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn config_entries(
        &self,
        kind: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<ConfigEntry>>> {
        let request = Request::get("config.list", "/v1/config").segment(kind);
        self.read_list(request.query(options)).await
    }

    /// Writes an entry. With `index`, only if it was last changed at that index, 0 being: if
    /// there is none; `false` when that did not hold. Newer servers (seen on 1.19.2) answer
    /// `true` for an entry that is as it was, whatever its index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn config_set(
        &self,
        entry: &ConfigEntry,
        index: Option<u64>,
        options: &WriteOptions,
    ) -> Result<bool> {
        let request = Request::put("config.set", "/v1/config").json(entry);
        self.decide(at(request, index).write(options)).await
    }

    /// Removes an entry; what is not there counts as removed. With `index`, only if it was last
    /// changed at that index; `false` when that did not hold (Consul 1.12; older servers
    /// remove it all the same).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn config_delete(
        &self,
        kind: &str,
        name: &str,
        index: Option<u64>,
        options: &WriteOptions,
    ) -> Result<bool> {
        let request = Request::delete("config.delete", "/v1/config").segment(kind).segment(name);
        let response = self.send(at(request, index).write(options)).await?;
        // Without a condition the answer is an empty object.
        Ok(response.body().trim_ascii() != b"false")
    }
}

fn at(request: Request, index: Option<u64>) -> Request {
    match index {
        Some(index) => request.param("cas", index.to_string()),
        None => request,
    }
}
