//! Logs the task's tokens out at its end, so that they do not outlive it in Consul.

use std::path::PathBuf;

use consul_watch::{Client, WriteOptions};

use crate::{Error, login};

/// Tokens to log out when the task ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Logout {
    /// Client for the calls; without files its own token is logged out.
    pub client: Client,
    /// Files that hold the tokens to log out.
    pub files: Vec<PathBuf>,
}

impl Logout {
    /// Logs out the client's own token.
    pub fn of_client(client: Client) -> Self {
        Self { client, files: Vec::new() }
    }

    /// Logs out the tokens in these files; missing files are skipped.
    pub fn of_files(client: Client, files: Vec<PathBuf>) -> Self {
        Self { client, files }
    }

    pub(super) async fn run(&self) -> Vec<Error> {
        if self.files.is_empty() {
            let result = self.client.acl_logout(&WriteOptions::default()).await;
            return result
                .err()
                .map(|error| Error::consul("logging out", error))
                .into_iter()
                .collect();
        }
        let mut errors = Vec::new();
        for file in &self.files {
            errors.extend(login::log_out(&self.client, file).await.err());
        }
        errors
    }
}
