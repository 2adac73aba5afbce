//! Requests to the XML API of a firewall.

use reqwest::redirect;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    response::Response,
    settings::{Credential, PanosSettings},
};
use crate::{Error, Result};

/// The most that an answer may hold, in bytes.
const MAX_ANSWER: usize = 4 << 20;

/// The most of a server's message that an error repeats, in characters.
const MAX_MESSAGE: usize = 500;

/// A firewall that was told who asks.
pub(super) struct Connection {
    http: reqwest::Client,
    /// Without the path; it holds no secret.
    address: String,
    key: SecretString,
    /// The password or key, which no error may repeat.
    secrets: Vec<SecretString>,
}

impl Connection {
    pub(super) async fn open(settings: &PanosSettings) -> Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(settings.timeout)
            // Another address is not the one to give secrets to.
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(!settings.verify)
            .user_agent(concat!("cts-driver-terraform/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = http.map_err(|error| failure(&settings.address, &error.to_string(), false))?;
        let address = settings.address.clone();
        let key = SecretString::default();
        let mut connection = Self { http, address, key, secrets: Vec::new() };
        connection.key = match &settings.credential {
            Credential::Key(key) => key.clone(),
            Credential::Password(password) => {
                connection.secrets.push(password.clone());
                let form = [
                    ("type", "keygen"),
                    ("user", &settings.username),
                    ("password", password.expose_secret()),
                ];
                connection.post(&form).await?.key()?
            }
        };
        connection.secrets.push(connection.key.clone());
        Ok(connection)
    }

    /// Sends one request with the key.
    pub(super) async fn ask(&self, parameters: &[(&str, &str)]) -> Result<Response<'_>> {
        let mut form = parameters.to_vec();
        form.push(("key", self.key.expose_secret()));
        self.post(&form).await
    }

    /// The firewall's address, for people.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn failure(&self, problem: String, retryable: bool) -> Error {
        let known = self
            .secrets
            .iter()
            .fold(problem, |problem, secret| problem.replace(secret.expose_secret(), "(secret)"));
        let bounded: String = known.chars().take(MAX_MESSAGE).collect();
        failure(&self.address, &bounded, retryable)
    }

    async fn post(&self, form: &[(&str, &str)]) -> Result<Response<'_>> {
        let failed = |error: reqwest::Error| {
            let error = error.without_url();
            self.failure(consul_watch::error_chain(&error), true)
        };
        let request = self.http.post(format!("{}/api/", self.address)).form(form);
        let mut answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let mut content = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if content.len() + chunk.len() > MAX_ANSWER {
                let problem = format!("the answer is longer than {MAX_ANSWER} bytes");
                return Err(self.failure(problem, false));
            }
            content.extend_from_slice(&chunk);
        }
        Response::read(self, status.as_u16(), &content)
    }
}

fn failure(address: &str, problem: &str, retryable: bool) -> Error {
    Error::Handler {
        provider: "panos".to_owned(),
        problem: format!("cannot commit on {address}: {problem}"),
        retryable,
    }
}
