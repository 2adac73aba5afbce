//! Metadata from the endpoint that ECS offers to each container.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::BoxError;
use http::{
    Request, StatusCode, Uri,
    header::{CONNECTION, HOST, HeaderValue},
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{Task, TaskMetadata};
use crate::{Error, Result};

/// Name of the variable in which ECS passes the metadata's address.
pub const METADATA_VARIABLE: &str = "ECS_CONTAINER_METADATA_URI_V4";

const TIME_LIMIT: Duration = Duration::from_secs(5);
const SIZE_LIMIT: usize = 8 << 20;

/// Metadata from ECS, over plain HTTP and past any proxy.
///
/// Deviation: upstream waits without limit and accepts any response; here it is due within 5 s,
/// with status 200, and at most 8 MiB long.
///
/// Source: consul-ecs 0.10 `awsutil/awsutil.go` (`ECSTaskMetadata`).
#[derive(Debug, Clone)]
pub struct HttpTaskMetadata {
    wire: Wire,
    url: Uri,
    limit: Duration,
}

#[derive(Debug, Clone)]
enum Wire {
    /// Plain HTTP, as ECS serves it: no TLS library is set up. Uses one connection for each
    /// request.
    Plain,
    #[cfg(feature = "tls")]
    Tls(reqwest::Client),
}

impl HttpTaskMetadata {
    /// Creates a source for the address in [`METADATA_VARIABLE`], which `lookup` reads.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the variable is unset, or not an HTTP address.
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

    /// Creates a source for the container at `address`.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] if no HTTP client can be built, [`Error::Input`] for https without the
    /// feature `tls`.
    pub fn new(address: &str) -> Result<Self> {
        Self::with_time_limit(address, TIME_LIMIT)
    }

    /// Creates a source whose response is due within `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] if no HTTP client can be built, [`Error::Input`] for https without the
    /// feature `tls`.
    pub fn with_time_limit(address: &str, limit: Duration) -> Result<Self> {
        const STEP: &str = "calling metadata uri";
        let url: Uri = format!("{}/task", address.trim_end_matches('/'))
            .parse()
            .map_err(|error| failed(STEP, format!("{address:?} is no address of HTTP: {error}")))?;
        let https = url.scheme_str() == Some("https");
        crate::tls::check(METADATA_VARIABLE, https)?;
        #[cfg(feature = "tls")]
        if https {
            // A proxy of the environment cannot reach the link-local address.
            let client = reqwest::Client::builder().no_proxy().build();
            let wire = Wire::Tls(client.map_err(|error| failed(STEP, error))?);
            return Ok(Self { wire, url, limit });
        }
        Ok(Self { wire: Wire::Plain, url, limit })
    }

    async fn fetch(&self) -> Result<Vec<u8>, Failure> {
        match &self.wire {
            Wire::Plain => plain(&self.url).await,
            #[cfg(feature = "tls")]
            Wire::Tls(client) => over_tls(client, &self.url).await,
        }
    }
}

#[async_trait]
impl TaskMetadata for HttpTaskMetadata {
    async fn task(&self) -> Result<Task> {
        // One limit over all steps: a body that trickles in counts as no answer.
        let answer = timeout(self.limit, self.fetch()).await.unwrap_or_else(|_elapsed| {
            Err(Failure::Call(format!("no answer within {:?}", self.limit).into()))
        });
        let told =
            |source: &BoxError| format!("{}: {}", self.url, consul_watch::error_chain(&**source));
        match answer {
            Ok(body) => Task::parse(&body),
            Err(Failure::Call(source)) => Err(failed("calling metadata uri", told(&source))),
            Err(Failure::Body(source)) => {
                Err(failed("reading metadata uri response body", told(&source)))
            }
        }
    }
}

/// Step that failed.
enum Failure {
    Call(BoxError),
    Body(BoxError),
}

/// Asks over a connection of its own.
async fn plain(url: &Uri) -> Result<Vec<u8>, Failure> {
    fn call(error: impl Into<BoxError>) -> Failure {
        Failure::Call(error.into())
    }
    let authority = url.authority().ok_or_else(|| call("the address names no host"))?;
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await;
    let stream = stream.map_err(call)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(call)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, authority.as_str())
        // ECS's endpoint needs no keep-alive, and an idle connection would have to be watched.
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::<Bytes>::new())
        .map_err(call)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(call)?;
        if answer.status() != StatusCode::OK {
            return Err(call(format!("it answered {}", answer.status())));
        }
        // Limited while reading, so that a wrong endpoint cannot fill the memory.
        let body = Limited::new(answer.into_body(), SIZE_LIMIT).collect().await;
        body.map(|body| body.to_bytes().to_vec()).map_err(Failure::Body)
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        body = &mut exchange => body,
        // The connection may end first; the response that it has read is still to be taken.
        _ended = connection => exchange.await,
    }
}

#[cfg(feature = "tls")]
async fn over_tls(client: &reqwest::Client, url: &Uri) -> Result<Vec<u8>, Failure> {
    let answer = client.get(url.to_string()).send().await;
    let answer = answer.and_then(reqwest::Response::error_for_status);
    let mut answer = answer.map_err(|error| Failure::Call(error.without_url().into()))?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| Failure::Body(error.into()))? {
        body.extend_from_slice(&chunk);
        if body.len() > SIZE_LIMIT {
            return Err(Failure::Body("the answer is larger than 8 MiB".into()));
        }
    }
    Ok(body)
}

fn failed(step: &str, source: impl Into<BoxError>) -> Error {
    Error::Metadata { step: step.to_owned(), source: source.into() }
}
