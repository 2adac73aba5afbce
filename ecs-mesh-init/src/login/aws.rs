//! Bearer tokens for the AWS IAM auth method: signed AWS requests that Consul's servers send on in
//! the task's name.

mod credentials;
mod signing;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{Clock, SystemClock};
use reqwest::Client;
use secrecy::SecretString;

use super::BearerTokens;
use crate::{Error, Result, Vars, config::LoginConfig, metadata::Task};

pub use credentials::AwsCredentials;
pub use signing::{SigningInput, bearer_token};

use signing::Entity;

const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Creates bearer tokens with the credentials of the task's role.
///
/// Credentials come from the variables `AWS_ACCESS_KEY_ID` and so on, else from the endpoint that
/// ECS offers to containers.
#[derive(Clone)]
pub struct AwsBearerTokens {
    vars: Vars,
    clock: Arc<dyn Clock>,
    http: Client,
}

impl std::fmt::Debug for AwsBearerTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsBearerTokens").finish_non_exhaustive()
    }
}

impl AwsBearerTokens {
    /// Creates a source that reads credentials through `vars`.
    ///
    /// # Errors
    ///
    /// [`Error::Login`] if no HTTP client can be built.
    pub fn new(vars: Vars) -> Result<Self> {
        let http = Client::builder()
            .timeout(TIME_LIMIT)
            .build()
            .map_err(|error| Error::login("making an HTTP client", false, error))?;
        Ok(Self { vars, clock: Arc::new(SystemClock), http })
    }

    /// Returns the caller's ARN according to STS.
    async fn caller(&self, input: &SigningInput) -> Result<String> {
        const STEP: &str = "calling sts:GetCallerIdentity";
        let signed = signing::sts_request(input, None)?;
        let mut request = self.http.post(&signed.url).body(signed.body);
        for (name, value) in signed.headers {
            // The client counts the body itself.
            if name != "Content-Length" {
                request = request.header(name, value);
            }
        }
        let answer =
            request.send().await.map_err(|error| Error::login(STEP, true, error.without_url()))?;
        let status = answer.status();
        let text =
            answer.text().await.map_err(|error| Error::login(STEP, true, error.without_url()))?;
        if !status.is_success() {
            return Err(Error::login(STEP, true, format!("STS answered {status}")));
        }
        // STS answers XML; this is the only value needed of it.
        let arn = text
            .split_once("<Arn>")
            .and_then(|(_before, rest)| rest.split_once("</Arn>"))
            .map(|(arn, _after)| arn.trim().to_owned());
        arn.ok_or_else(|| Error::login(STEP, true, "STS's answer names no ARN"))
    }
}

#[async_trait]
impl BearerTokens for AwsBearerTokens {
    async fn bearer_token(&self, login: &LoginConfig, task: &Task) -> Result<SecretString> {
        let credentials = AwsCredentials::find(&*self.vars, &self.http).await?;
        let region = task.region(Some(&login.region))?;
        let mut input = SigningInput::new(credentials, region, self.clock.now());
        if !login.sts_endpoint.is_empty() {
            input.set_sts_endpoint(&login.sts_endpoint);
        }
        input.server_id = Some(login.server_id_header_value.clone()).filter(|id| !id.is_empty());
        if login.include_entity {
            // Credentials do not say whose they are; STS does.
            input.entity = Some(Entity::of_arn(&self.caller(&input).await?)?);
        }
        bearer_token(&input)
    }
}
