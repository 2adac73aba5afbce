//! `SessionApi`: calls of `/v1/session/`, as a trait that other crates take.

use async_trait::async_trait;
use serde::Deserialize;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{Session, SessionId, SessionRequest},
};

/// Sessions, for those who need nothing else of Consul. Nothing here renews by itself.
#[async_trait]
pub trait SessionApi: std::fmt::Debug + Send + Sync + 'static {
    /// Creates a session.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn session_create(
        &self,
        request: &SessionRequest,
        options: &WriteOptions,
    ) -> Result<SessionId>;

    /// Ends a session. One that is not known counts as ended.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn session_destroy(&self, id: &SessionId, options: &WriteOptions) -> Result<()>;

    /// Starts a session's TTL again; `None` when there is no such session any more.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn session_renew(
        &self,
        id: &SessionId,
        options: &WriteOptions,
    ) -> Result<Option<Session>>;

    /// Returns a session; `None` when there is none with this id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn session_info(
        &self,
        id: &SessionId,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Session>>>;
}

#[async_trait]
impl SessionApi for Client {
    async fn session_create(
        &self,
        request: &SessionRequest,
        options: &WriteOptions,
    ) -> Result<SessionId> {
        Self::session_create(self, request, options).await
    }

    async fn session_destroy(&self, id: &SessionId, options: &WriteOptions) -> Result<()> {
        Self::session_destroy(self, id, options).await
    }

    async fn session_renew(
        &self,
        id: &SessionId,
        options: &WriteOptions,
    ) -> Result<Option<Session>> {
        Self::session_renew(self, id, options).await
    }

    async fn session_info(
        &self,
        id: &SessionId,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Session>>> {
        Self::session_info(self, id, options).await
    }
}

/// Sessions. Nothing here renews by itself.
impl Client {
    /// Creates a session.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_create(
        &self,
        request: &SessionRequest,
        options: &WriteOptions,
    ) -> Result<SessionId> {
        #[derive(Deserialize)]
        struct Created {
            #[serde(rename = "ID")]
            id: SessionId,
        }
        let request =
            Request::put("session.create", "/v1/session/create").json(request).write(options);
        self.read::<Created>(request).await.map(|answer| answer.value.id)
    }

    /// Ends a session. One that is not known counts as ended.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_destroy(&self, id: &SessionId, options: &WriteOptions) -> Result<()> {
        let request = Request::put("session.destroy", "/v1/session/destroy").segment(id.as_str());
        self.send(request.write(options)).await.map(drop)
    }

    /// Starts a session's TTL again; `None` when there is no such session any
    /// more. The answer's TTL may be longer than the one asked for.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_renew(
        &self,
        id: &SessionId,
        options: &WriteOptions,
    ) -> Result<Option<Session>> {
        let request = Request::put("session.renew", "/v1/session/renew").segment(id.as_str());
        // 404 is how Consul says that the session is over, and no failure of the call.
        let response =
            self.send(request.write(options).accept(http::StatusCode::NOT_FOUND)).await?;
        let found: Option<Option<Vec<Session>>> = present(&response)?;
        Ok(found.flatten().and_then(|sessions| sessions.into_iter().next()))
    }

    /// Returns a session; `None` when there is none with this id. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_info(
        &self,
        id: &SessionId,
        options: &QueryOptions,
    ) -> Result<Answer<Option<Session>>> {
        let request =
            Request::get("session.info", "/v1/session/info").segment(id.as_str()).query(options);
        let answer = self.read_list::<Session>(request).await?;
        Ok(answer.map(|sessions| sessions.into_iter().next()))
    }

    /// The sessions of a node. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_node(
        &self,
        node: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<Session>>> {
        self.read_list(
            Request::get("session.node", "/v1/session/node").segment(node).query(options),
        )
        .await
    }

    /// Lists all sessions. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn session_list(&self, options: &QueryOptions) -> Result<Answer<Vec<Session>>> {
        self.read_list(Request::get("session.list", "/v1/session/list").query(options)).await
    }
}
