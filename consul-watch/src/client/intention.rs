//! Intentions: calls of `/v1/connect/intentions`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{Intention, IntentionSide},
};

const PATH: &str = "/v1/connect/intentions";
const EXACT: &str = "/v1/connect/intentions/exact";

/// Intentions: which service may connect to which.
impl Client {
    /// Lists all intentions; the one that decides comes before those that it
    /// overrules. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intentions(&self, options: &QueryOptions) -> Result<Answer<Vec<Intention>>> {
        self.read_list(Request::get("connect.intentions", PATH).query(options)).await
    }

    /// The intention between two services (Consul 1.9); `None` when there is none of just
    /// these names. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention(
        &self,
        source: &str,
        destination: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Intention>>> {
        let request = Request::get("connect.intention", EXACT)
            .param("source", source)
            .param("destination", destination)
            .query(options);
        self.intention_find(request).await
    }

    /// Makes or replaces the intention between two services (Consul 1.9).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_set(&self, intention: &Intention, options: &WriteOptions) -> Result<()> {
        let request = Request::put("connect.intention.set", EXACT)
            .param("source", intention.source_name.as_str())
            .param("destination", intention.destination_name.as_str())
            .json(intention)
            .write(options);
        self.send(request).await.map(drop)
    }

    /// Removes the intention between two services (Consul 1.9). What is not there counts as
    /// removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_delete(
        &self,
        source: &str,
        destination: &str,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::delete("connect.intention.delete", EXACT)
            .param("source", source)
            .param("destination", destination)
            .accept(StatusCode::NOT_FOUND)
            .write(options);
        self.send(request).await.map(drop)
    }

    /// The intentions that concern a service, the deciding one first. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_match(
        &self,
        side: &IntentionSide,
        service: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<Intention>>> {
        let request = Request::get("connect.intention.match", "/v1/connect/intentions/match")
            .param("by", side.as_str())
            .param("name", service)
            .query(options);
        let answer: Answer<Option<BTreeMap<String, Option<Vec<Intention>>>>> =
            self.read(request).await?;
        Ok(answer
            .map(|found| found.unwrap_or_default().remove(service).flatten().unwrap_or_default()))
    }

    /// Returns `true` if one service may connect to another. Does not block.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_check(
        &self,
        source: &str,
        destination: &str,
        options: &QueryOptions,
    ) -> Result<bool> {
        #[derive(Deserialize)]
        struct Checked {
            #[serde(rename = "Allowed")]
            allowed: bool,
        }
        let request = Request::get("connect.intention.check", "/v1/connect/intentions/check")
            .param("source", source)
            .param("destination", destination)
            .query(options);
        self.read::<Checked>(request).await.map(|answer| answer.value.allowed)
    }

    /// The intention with this id; `None` when there is none. Blocks by index.
    ///
    /// Ids are what servers before 1.9 know intentions by; newer ones keep them for those only.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_by_id(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Intention>>> {
        let request = Request::get("connect.intention", PATH).segment(id).query(options);
        self.intention_find(request).await
    }

    /// Makes an intention and gives its id, also on servers before 1.9.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_create(
        &self,
        intention: &Intention,
        options: &WriteOptions,
    ) -> Result<String> {
        let request = Request::post("connect.intention.create", PATH).json(intention);
        self.created(request.write(options)).await
    }

    /// Replaces the intention with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_update(
        &self,
        intention: &Intention,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::put("connect.intention.update", PATH).segment(&intention.id);
        self.send(request.json(intention).write(options)).await.map(drop)
    }

    /// Removes the intention with this id. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn intention_delete_by_id(&self, id: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("connect.intention.delete", PATH).segment(id);
        self.send(request.accept(StatusCode::NOT_FOUND).write(options)).await.map(drop)
    }

    async fn intention_find(&self, request: Request) -> Result<Answer<Option<Intention>>> {
        let response = self.send(request.accept(StatusCode::NOT_FOUND)).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// Sends a write that answers with the id of what it has made.
    pub(super) async fn created(&self, request: Request) -> Result<String> {
        #[derive(Deserialize)]
        struct Created {
            #[serde(rename = "ID")]
            id: String,
        }
        self.read::<Created>(request).await.map(|answer| answer.value.id)
    }
}
