//! The file in the shared volume that hands the task's token to the other containers.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use consul_watch::{Client, Consistency, QueryOptions, WriteOptions};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    registration::{RetryPolicy, retry},
};

/// Returns the path of the service's token in the shared volume.
pub fn token_file(bootstrap_dir: &Path) -> PathBuf {
    bootstrap_dir.join("service-token")
}

/// Waits until the server knows the token of `client`, since a new one reaches the followers a
/// moment later.
///
/// # Errors
///
/// [`Error::Consul`] after 20 retries, which take 2 s.
pub async fn confirm_token(client: &Client, stop: &CancellationToken) -> Result<()> {
    // As upstream: one attempt and 20 retries.
    let policy = RetryPolicy::every(Duration::from_millis(100)).with_attempts(21);
    let mut options = QueryOptions::default();
    // Stale, so that the asked server answers from its own data, as it will for the task.
    options.consistency = Consistency::Stale;
    let options = &options;
    retry(policy, "reading the token", stop, || async move {
        let answer = client.acl_token_self(options).await;
        answer.map(drop).map_err(|error| Error::consul("reading the token", error))
    })
    .await
}

/// Logs the token in a file out; a missing file is skipped.
///
/// # Errors
///
/// [`Error::File`] if it cannot be read, [`Error::Consul`] if Consul refuses.
pub async fn log_out(client: &Client, file: &Path) -> Result<()> {
    let token = match tokio::fs::read_to_string(file).await {
        // An editor or shell may have added a newline, which no header can carry.
        Ok(text) => SecretString::from(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(Error::File { operation: "reading", path: file.to_owned(), source });
        }
    };
    let failed = |error| Error::consul("logging out", error);
    let client = client.with_token(Some(token)).map_err(failed)?;
    client.acl_logout(&WriteOptions::default()).await.map_err(failed)
}
