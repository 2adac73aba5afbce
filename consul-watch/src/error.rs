use std::time::Duration;

use http::StatusCode;

/// A boxed error of another crate, kept as the source of one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong between this process and Consul.
///
/// `Display` is one line without the cause; walk [`std::error::Error::source`]
/// for the chain. No variant ever holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No complete HTTP exchange took place: connection refused or cut, DNS, TLS.
    #[error("{operation}: request to {address} did not complete")]
    Transport {
        /// The call, such as `health.service`.
        operation: &'static str,
        /// Where the request went, without credentials.
        address: String,
        /// What the transport reported.
        source: BoxError,
    },
    /// Consul did not answer in time.
    #[error("{operation}: no answer from {address} within {} s", after.as_secs_f64())]
    Timeout {
        /// The call, such as `health.service`.
        operation: &'static str,
        /// Where the request went, without credentials.
        address: String,
        /// The limit that was reached.
        after: Duration,
    },
    /// Consul answered outside 2xx.
    ///
    /// The text keeps the shape of Consul's own client, which operators grep for.
    #[error("{operation}: Unexpected response code: {} ({message})", status.as_u16())]
    Status {
        /// The call, such as `kv.put`.
        operation: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// The trimmed body, cut to a bounded length.
        message: String,
        /// The wait that a proxy asked for with `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The body was complete but is not what the endpoint is known to answer.
    #[error("{operation}: cannot read Consul's answer")]
    Decode {
        /// The call, such as `catalog.services`.
        operation: &'static str,
        /// What the decoder reported.
        source: BoxError,
    },
    /// The client's configuration is wrong.
    #[error("{setting}: {problem}")]
    Config {
        /// The variable or setting, such as `CONSUL_HTTP_ADDR`.
        setting: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// The call.
        operation: &'static str,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
}

impl Error {
    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => status.is_server_error(),
            Self::Decode { .. } | Self::Config { .. } => false,
            Self::Other { retryable, .. } => *retryable,
        }
    }
}
