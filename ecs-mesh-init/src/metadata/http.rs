use std::time::Duration;

use async_trait::async_trait;
use consul_watch::BoxError;
use reqwest::{Client, Response};

use super::{Task, TaskMetadata};
use crate::{Error, Result};

/// The variable in which ECS gives the metadata's address.
pub const METADATA_VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";

const TIME_LIMIT: Duration = Duration::from_secs(5);
const SIZE_LIMIT: usize = 8 << 20;

/// Metadata from ECS, over plain HTTP and past any proxy.
///
/// Deviation: upstream waits without limit and takes any answer; here an answer is due within 5 s,
/// with status 200, and has at most 8 MiB.
///
/// Source: consul-ecs 0.10 `awsutil/awsutil.go` (`ECSTaskMetadata`).
#[derive(Debug, Clone)]
pub struct HttpTaskMetadata {
    client: Client,
    url: String,
}

impl HttpTaskMetadata {
    /// Metadata at the address in [`METADATA_VARIABLE`], which `lookup` reads.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when the variable is not set, or no address of HTTP.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        match lookup(METADATA_VARIABLE).filter(|address| !address.is_empty()) {
            Some(address) if address.starts_with("http://") || address.starts_with("https://") => {
                Self::new(&address)
            }
            Some(other) => Err(Error::input(format!(
                "{METADATA_VARIABLE} is {other:?}, but must begin with http://; ECS sets it to an address \
                 such as http://169.254.170.2/v4/ID"
            ))),
            None => Err(Error::input(format!("{METADATA_VARIABLE} env var not set"))),
        }
    }

    /// Metadata of the container at `address`.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] when no HTTP client can be made.
    pub fn new(address: &str) -> Result<Self> {
        Self::with_time_limit(address, TIME_LIMIT)
    }

    /// Metadata whose answer is due within `limit`.
    ///
    /// # Errors
    ///
    /// As [`HttpTaskMetadata::new`].
    pub fn with_time_limit(address: &str, limit: Duration) -> Result<Self> {
        let mut builder = Client::builder().no_proxy().timeout(limit);
        if address.starts_with("http://") {
            // Reading the system's authorities would take longer than everything else.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| failed("calling metadata uri", error))?;
        Ok(Self { client, url: format!("{}/task", address.trim_end_matches('/')) })
    }
}

#[async_trait]
impl TaskMetadata for HttpTaskMetadata {
    async fn task(&self) -> Result<Task> {
        let response = self
            .client
            .get(&self.url)
            .send()
            .await
            .and_then(Response::error_for_status)
            .map_err(|error| failed("calling metadata uri", error))?;
        Task::parse(&body(response).await?)
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>> {
    const STEP: &str = "reading metadata uri response body";
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(STEP, error))? {
        body.extend_from_slice(&chunk);
        if body.len() > SIZE_LIMIT {
            return Err(failed(STEP, "the answer is larger than 8 MiB"));
        }
    }
    Ok(body)
}

fn failed(step: &str, source: impl Into<BoxError>) -> Error {
    Error::Metadata { step: step.to_owned(), source: source.into() }
}
