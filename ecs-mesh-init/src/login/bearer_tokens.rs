//! The seam to whatever proves to Consul's servers which task logs in.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::{Result, config::LoginConfig, metadata::Task};

/// Source of bearer tokens for the AWS IAM auth method.
///
/// A bearer token is valid for about 15 minutes: create a new one for each attempt to log in.
#[async_trait]
pub trait BearerTokens: std::fmt::Debug + Send + Sync + 'static {
    /// Creates a bearer token for this login of this task.
    ///
    /// # Errors
    ///
    /// [`Error::Login`](crate::Error::Login) when credentials or STS are not available.
    async fn bearer_token(&self, login: &LoginConfig, task: &Task) -> Result<SecretString>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: BearerTokens + ?Sized> BearerTokens for Arc<B> {
    async fn bearer_token(&self, login: &LoginConfig, task: &Task) -> Result<SecretString> {
        (**self).bearer_token(login, task).await
    }
}
