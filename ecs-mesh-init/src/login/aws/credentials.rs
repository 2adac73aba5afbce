//! AWS credentials of a container: from variables, else from the endpoint that ECS serves on the
//! host.

use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{Error, Result};

/// Address at which ECS serves credentials to containers.
const CONTAINER_HOST: &str = "http://169.254.170.2";

/// AWS credentials.
#[derive(Debug, Clone)]
pub struct AwsCredentials {
    /// Id of the access key.
    pub access_key_id: String,
    /// Secret of the access key.
    pub secret_access_key: SecretString,
    /// Session token, for temporary credentials.
    pub session_token: Option<SecretString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    token: Option<String>,
}

impl AwsCredentials {
    /// Reads credentials from variables, else from the container's endpoint that variables name.
    pub(super) async fn find(
        vars: &(dyn Fn(&str) -> Option<String> + Send + Sync),
        http: &Client,
    ) -> Result<Self> {
        let var = |name: &str| vars(name).filter(|value| !value.is_empty());
        if let (Some(id), Some(key)) = (var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Self {
                access_key_id: id,
                secret_access_key: key.into(),
                session_token: var("AWS_SESSION_TOKEN").map(SecretString::from),
            });
        }
        // The relative URI is the one that ECS sets; the full one serves other hosts, such as
        // tests.
        let url = match var("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            Some(path) => format!("{CONTAINER_HOST}{path}"),
            None => var("AWS_CONTAINER_CREDENTIALS_FULL_URI").ok_or_else(no_credentials)?,
        };
        let token = var("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(SecretString::from);
        Self::ask(http, &url, token.as_ref()).await
    }

    async fn ask(http: &Client, url: &str, token: Option<&SecretString>) -> Result<Self> {
        const STEP: &str = "reading the container's AWS credentials";
        let mut request = http.get(url);
        if let Some(token) = token {
            // The URL carries the credentials' id, which is as good as the credentials within the
            // task.
            request = request.header("Authorization", token.expose_secret());
        }
        let answer = request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(|error| Error::login(STEP, true, error.without_url()))?;
        // The decoder's own error could quote the answer, which is a secret.
        let answer: Answer = answer.json().await.map_err(|_error| {
            Error::login(STEP, true, "the answer has not the form of credentials")
        })?;
        Ok(Self {
            access_key_id: answer.access_key_id,
            secret_access_key: answer.secret_access_key.into(),
            session_token: answer.token.map(SecretString::from),
        })
    }
}

fn no_credentials() -> Error {
    Error::login(
        "finding AWS credentials",
        true,
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the task a role",
    )
}
