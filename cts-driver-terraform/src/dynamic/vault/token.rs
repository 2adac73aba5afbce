//! The token for Vault: its sources, unwrapping and renewal.

use std::time::Duration;

use consul_watch::Backoff;
use http::Method;
use secrecy::SecretString;
use serde_json::{Value as Json, json};
use tokio::{sync::OnceCell, time::sleep};

use super::{Problem, Result, Vault, success};

/// The shortest pause between two renewals.
const PAUSE: Duration = Duration::from_secs(1);

/// The token in use. A wrapped one is unwrapped once, which uses it up.
#[derive(Default)]
pub(super) struct Token {
    unwrapped: OnceCell<SecretString>,
}

impl Vault {
    /// The token to send. An agent's file is read again, because the agent
    /// writes another token there whenever the old one ends.
    pub(super) async fn current_token(&self) -> Result<Option<SecretString>> {
        let token = match &self.config.agent_token_file {
            Some(file) => {
                let text = tokio::fs::read_to_string(file).await.map_err(|error| {
                    let file = file.display();
                    Problem::new(
                        format!("cannot read vault_agent_token_file {file}: {error}"),
                        true,
                    )
                })?;
                Some(text.trim().to_owned()).filter(|token| !token.is_empty()).map(Into::into)
            }
            None => self.config.token.clone(),
        };
        match token {
            Some(wrapped) if self.config.unwrap_token => {
                let unwrapped = self.token.unwrapped.get_or_try_init(|| self.unwrap(wrapped));
                Ok(Some(unwrapped.await?.clone()))
            }
            token => Ok(token),
        }
    }

    async fn unwrap(&self, wrapped: SecretString) -> Result<SecretString> {
        let (status, answer) =
            self.call_with(Method::POST, "sys/wrapping/unwrap", None, Some(&wrapped)).await?;
        let answer = success(status, answer).map_err(|problem| {
            let message = format!("cannot unwrap the token: {}", problem.message);
            Problem { message, ..problem }
        })?;
        // A token that was made wrapped, or one that was wrapped later.
        let token = answer.pointer("/auth/client_token").or_else(|| answer.pointer("/data/token"));
        let token = token.and_then(Json::as_str).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| Problem::new("what was unwrapped is no token", false))?;
        Ok(token.to_owned().into())
    }

    /// Renews the token whenever two thirds of its time are over, until it
    /// cannot be renewed. Returns at once where there is nothing to renew.
    pub(in crate::dynamic) async fn keep_token(&self) {
        if !self.config.renew_token {
            return;
        }
        let mut backoff = Backoff::default();
        let mut left = loop {
            match self.time_to_live().await {
                Ok(Some(left)) => break left,
                Ok(None) => return,
                Err(problem) if problem.retryable => sleep(backoff.next_delay()).await,
                Err(problem) => {
                    return tracing::warn!(
                        problem = problem.message,
                        "cannot look up Vault's token"
                    );
                }
            }
        };
        loop {
            sleep((left * 2 / 3).max(PAUSE)).await;
            match self.renew().await {
                Ok(renewed) => left = renewed,
                Err(problem) => {
                    tracing::warn!(problem = problem.message, "cannot renew Vault's token");
                    left /= 3;
                    if left < PAUSE || !problem.retryable {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the token's time to live; `None` if it does not expire, or cannot be renewed.
    async fn time_to_live(&self) -> Result<Option<Duration>> {
        let (status, answer) = self.call(Method::GET, "auth/token/lookup-self", None).await?;
        let answer = success(status, answer)?;
        let renewable = answer.pointer("/data/renewable").and_then(Json::as_bool);
        let seconds = answer.pointer("/data/ttl").and_then(Json::as_u64).unwrap_or(0);
        let lives = renewable == Some(true) && seconds > 0;
        Ok(lives.then(|| Duration::from_secs(seconds)))
    }

    async fn renew(&self) -> Result<Duration> {
        let (status, answer) =
            self.call(Method::POST, "auth/token/renew-self", Some(json!({}))).await?;
        let answer = success(status, answer)?;
        let seconds = answer.pointer("/auth/lease_duration").and_then(Json::as_u64);
        Ok(Duration::from_secs(seconds.unwrap_or(0)))
    }
}
