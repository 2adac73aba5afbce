use std::path::PathBuf;

use consul_watch::{Client, WriteOptions};

use crate::{Error, login};

/// What gives the token back when the task ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Logout {
    /// The client: its token is given back when there are no files.
    pub client: Client,
    /// Files with the tokens to give back.
    pub files: Vec<PathBuf>,
}

impl Logout {
    /// Gives back the client's token.
    pub fn of_client(client: Client) -> Self {
        Self { client, files: Vec::new() }
    }

    /// Gives back the tokens in files; those that are not there are none.
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
