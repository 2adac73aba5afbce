//! ACL tokens: bootstrap, calls of `/v1/acl/token` and `/v1/acl/tokens`.

use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;

use crate::{
    Answer, Client, Error, QueryOptions, Result, WriteOptions,
    client::{Request, present},
    types::{AclToken, AclTokenEntry, AclTokenExpanded, AclTokenRequest},
};

/// Filter of the tokens that are listed. The default is all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct AclTokenFilter {
    /// Limits the list to tokens with the policy of this id.
    pub policy: Option<String>,
    /// Limits the list to tokens with the role of this id.
    pub role: Option<String>,
    /// Limits the list to tokens with the identity of this service (Consul 1.17.1).
    pub service_name: Option<String>,
    /// Limits the list to tokens made by logins through this auth method.
    pub auth_method: Option<String>,
}

/// ACL tokens.
impl Client {
    /// Makes the first token, which may do everything. Works once in a cluster's life.
    ///
    /// `secret` is a UUID of the caller's choice (Consul 1.11.5; older servers choose by
    /// themselves all the same).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [permission
    /// denied](Error::is_permission_denied) when it was done before.
    pub async fn acl_bootstrap(&self, secret: Option<&SecretString>) -> Result<AclToken> {
        let mut request = Request::put("acl.bootstrap", "/v1/acl/bootstrap");
        if let Some(secret) = secret {
            let body = serde_json::json!({ "BootstrapSecret": secret.expose_secret() });
            request = request.json(&body);
        }
        self.read(request).await.map(|answer| answer.value)
    }

    /// The token with this accessor id; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token(
        &self,
        accessor_id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclToken>>> {
        self.acl_find(token("acl.token", accessor_id).query(options)).await
    }

    /// The token with this accessor id and everything that its links lead to
    /// (Consul 1.12); `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token_expanded(
        &self,
        accessor_id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclTokenExpanded>>> {
        let request = token("acl.token", accessor_id).param("expanded", "true");
        self.acl_find(request.query(options)).await
    }

    /// The token that this client sends. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [permission
    /// denied](Error::is_permission_denied) when Consul does not know it.
    pub async fn acl_token_self(&self, options: &QueryOptions) -> Result<Answer<AclToken>> {
        self.read(Request::get("acl.token.self", "/v1/acl/token/self").query(options)).await
    }

    /// Tokens, without their secrets. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_tokens(
        &self,
        filter: &AclTokenFilter,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclTokenEntry>>> {
        let request = Request::get("acl.tokens", "/v1/acl/tokens")
            .param_if("policy", filter.policy.as_ref())
            .param_if("role", filter.role.as_ref())
            .param_if("servicename", filter.service_name.as_ref())
            .param_if("authmethod", filter.auth_method.as_ref());
        self.read_list(request.query(options)).await
    }

    /// Makes a token. With ids of the caller's choice it is not made twice.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token_create(
        &self,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken> {
        let request = Request::put("acl.token.create", "/v1/acl/token").json(token);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Makes a token into what the request says; what it does not say is emptied.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token_update(
        &self,
        accessor_id: &str,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken> {
        let request = Request::put("acl.token.update", "/v1/acl/token").segment(accessor_id);
        self.read(request.json(token).write(options)).await.map(|answer| answer.value)
    }

    /// Makes a token with the rights of another one, and a new secret.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token_clone(
        &self,
        accessor_id: &str,
        description: &str,
        options: &WriteOptions,
    ) -> Result<AclToken> {
        let request = Request::put("acl.token.clone", "/v1/acl/token")
            .segment(accessor_id)
            .segment("clone")
            .json(&serde_json::json!({ "Description": description }));
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Removes a token. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_token_delete(&self, accessor_id: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("acl.token.delete", "/v1/acl/token").segment(accessor_id);
        self.acl_remove(request.write(options)).await
    }

    /// Reads an ACL object that may be absent.
    ///
    /// Servers before 1.15 say 403 "ACL not found" of a token or policy that is not there, and
    /// the same of a request whose own token is not known. Only when Consul knows our own
    /// token does it mean the object.
    ///
    /// Source: measured on Consul 1.8.7; Consul `agent/acl_endpoint.go` at 1.8 and 1.15.
    pub(super) async fn acl_find<T: DeserializeOwned>(
        &self,
        request: Request,
    ) -> Result<Answer<Option<T>>> {
        match self.send(request.accept(StatusCode::NOT_FOUND)).await {
            Ok(response) => Ok(Answer::new(present(&response)?, response.into_meta())),
            Err(error) if says_not_found(&error) => {
                match self.acl_token_self(&QueryOptions::default()).await {
                    Ok(own) => Ok(own.map(|_token| None)),
                    Err(other) if says_not_found(&other) => Err(error),
                    Err(other) => Err(other),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Removes an ACL object: newer servers answer 404 when it is not there.
    pub(super) async fn acl_remove(&self, request: Request) -> Result<()> {
        self.send(request.accept(StatusCode::NOT_FOUND)).await.map(drop)
    }
}

fn token(operation: &'static str, accessor_id: &str) -> Request {
    Request::get(operation, "/v1/acl/token").segment(accessor_id)
}

fn says_not_found(error: &Error) -> bool {
    matches!(error, Error::Status { status: StatusCode::FORBIDDEN, message, .. }
        if message.contains("ACL not found"))
}
