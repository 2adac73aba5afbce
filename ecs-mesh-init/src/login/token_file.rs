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

/// Where the token of the service is, in the shared volume.
pub fn token_file(bootstrap_dir: &Path) -> PathBuf {
    bootstrap_dir.join("service-token")
}

/// Waits until the server knows the token of `client`: a new one takes a moment to get around.
///
/// # Errors
///
/// [`Error::Consul`] after 20 attempts, which take 2 s.
pub async fn confirm_token(client: &Client, stop: &CancellationToken) -> Result<()> {
    let policy = RetryPolicy::every(Duration::from_millis(100)).with_attempts(21);
    let mut options = QueryOptions::default();
    options.consistency = Consistency::Stale;
    let options = &options;
    retry(policy, "reading the token", stop, || async move {
        let answer = client.acl_token_self(options).await;
        answer.map(drop).map_err(|error| Error::consul("reading the token", error))
    })
    .await
}

/// Gives back the token in a file; a file that is not there is none.
///
/// # Errors
///
/// [`Error::File`] when it cannot be read, [`Error::Consul`] when Consul refuses.
pub async fn log_out(client: &Client, file: &Path) -> Result<()> {
    let token = match tokio::fs::read_to_string(file).await {
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
