//! The ACL token of a task: obtained by a login, kept in a file, logged out at the end.

#[cfg(feature = "iam-auth")]
mod aws;
mod bearer_tokens;
mod refusal;
mod token_file;

use std::{collections::BTreeMap, future::Future};

use consul_watch::{Client, WriteOptions, types::AclLogin};
use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    config::LoginConfig,
    registration::{RetryPolicy, retry},
};

#[cfg(feature = "iam-auth")]
pub use aws::{AwsBearerTokens, AwsCredentials, SigningInput, bearer_token};
pub use bearer_tokens::BearerTokens;
#[cfg(feature = "server-watch")]
pub(crate) use refusal::Refusal;
pub use token_file::{confirm_token, log_out, token_file};

/// Builds the metadata of the token: task and cluster, and over them the user's own.
pub fn login_meta(login: &LoginConfig, task_id: &str, cluster: &str) -> BTreeMap<String, String> {
    let mut meta: BTreeMap<String, String> = [
        ("consul.hashicorp.com/task-id".to_owned(), task_id.to_owned()),
        ("consul.hashicorp.com/cluster".to_owned(), cluster.to_owned()),
    ]
    .into();
    meta.extend(login.meta.clone());
    meta
}

/// Logs in with one request, which is never resent: each success creates a token.
///
/// # Errors
///
/// [`Error::Consul`] when Consul refuses, [`Error::Login`] when it answers without a token.
pub async fn log_in(
    client: &Client,
    login: &LoginConfig,
    bearer: SecretString,
    meta: BTreeMap<String, String>,
    partition: Option<&str>,
) -> Result<SecretString> {
    let mut request = AclLogin::new(login.method.as_str(), bearer);
    request.meta = meta;
    let mut options = WriteOptions::default();
    options.partition = partition.map(str::to_owned);
    options.datacenter = Some(login.datacenter.clone()).filter(|name| !name.is_empty());
    let token = client
        .acl_login(&request, &options)
        .await
        .map_err(|error| Error::consul("logging in", error))?;
    token.secret_id.ok_or_else(|| Error::login("logging in", true, "Consul's answer has no token"))
}

/// Logs in repeatedly, with a new bearer token for each attempt, until it succeeds or the servers
/// refuse for good.
///
/// # Errors
///
/// [`Error::Login`] with the servers' words if they refuse for good, else the last error when the
/// policy ends; [`Error::Stopped`] when `stop` is cancelled.
pub(crate) async fn log_in_until<T, F>(
    policy: RetryPolicy,
    stop: &CancellationToken,
    attempt: impl Fn() -> F + Send + Sync,
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send,
    T: Send,
{
    let began = Instant::now();
    retry(policy, "logging in", stop, || async {
        attempt().await.map_err(|error| {
            if refusal::is_final(&error, began.elapsed()) { refused(error) } else { error }
        })
    })
    .await
}

fn refused(error: Error) -> Error {
    Error::login("the servers refuse this task's login, and would again", false, error)
}
