//! `Error`: every failure of a call, with its operation, and whether a retry can help.

use std::{fmt, time::Duration};

use http::StatusCode;

/// A boxed error of another crate, kept as the source of one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error and its causes on one line, each once: what a person wants to read.
///
/// ```
/// let error = consul_watch::Error::Other {
///     operation: "kv.put",
///     retryable: false,
///     source: "the disk is full".into(),
/// };
/// assert_eq!(consul_watch::error_chain(&error), "kv.put failed: the disk is full");
/// ```
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure between this process and Consul.
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
        /// Address that the request went to, without credentials.
        address: String,
        /// The transport's own error.
        source: BoxError,
    },
    /// Consul did not answer in time.
    #[error("{operation}: no answer from {address} within {} s", after.as_secs_f64())]
    Timeout {
        /// The call, such as `health.service`.
        operation: &'static str,
        /// Address that the request went to, without credentials.
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
        /// The decoder's own error.
        source: BoxError,
    },
    /// The request cannot be sent as asked, such as a key that has no URL.
    #[error("{operation}: {problem}")]
    Input {
        /// The call, such as `kv.put`.
        operation: &'static str,
        /// The problem, and what would be right.
        problem: String,
    },
    /// The client's configuration is wrong.
    #[error("{setting}: {problem}")]
    Config {
        /// The variable or setting, such as `CONSUL_HTTP_ADDR`.
        setting: String,
        /// The problem, and what would be right.
        problem: String,
    },
    /// A setting asks for what this program was built without.
    #[error("{setting}: this program was built without the feature `{feature}`, which it needs")]
    MissingFeature {
        /// The variable or setting, such as `CONSUL_CACERT`.
        setting: &'static str,
        /// The Cargo feature of this crate.
        feature: &'static str,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// The call.
        operation: &'static str,
        /// `true` if the same call may succeed later.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
}

impl Error {
    pub(crate) fn config(setting: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::Config { setting: setting.into(), problem: problem.to_string() }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    ///
    /// True for failed connections, timeouts, 429, 500, 502, 503 and 504. Some
    /// permanent faults answer 500; they are known by their text.
    ///
    /// A denied permission is not retryable by this judgement, although a
    /// token may come to be accepted when it has replicated: a watch goes on
    /// for that reason, see [`Error::is_permission_denied`].
    ///
    /// Whether a *write* may be sent again is for the caller to know: after a
    /// timeout it may have taken effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::Status { status, message, .. } => is_transient(*status, message),
            Self::Decode { .. }
            | Self::Input { .. }
            | Self::Config { .. }
            | Self::MissingFeature { .. } => false,
            Self::Other { retryable, .. } => *retryable,
        }
    }

    /// Returns `true` if Consul does not have what was asked for (404).
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Returns `true` if the token may not do this, or is not known (401, 403).
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.status(), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }

    /// Returns the pause that a proxy asked for before the next attempt. Consul itself asks for
    /// none.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The HTTP status, when Consul answered.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Permanent faults that Consul answers with 500, by a part of their text.
/// Agents put prefixes before what a server said, so only parts are compared.
///
/// Source: measured on Consul 1.8.7; Consul `agent/http.go`.
const PERMANENT: &[&str] = &[
    "strconv.ParseUint: parsing",
    "UUID must be 36 characters",
    "invalid config entry kind",
    "Must provide address if SkipNodeUpdate is not set",
    "Failed to create boolean expression evaluator",
    "Invalid Session TTL",
    "Invalid Behavior setting",
    "does not have associated TTL",
];

fn is_transient(status: StatusCode, message: &str) -> bool {
    match status {
        StatusCode::INTERNAL_SERVER_ERROR => !PERMANENT.iter().any(|text| message.contains(text)),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Error {
        Error::Status {
            operation: "kv.get",
            status: StatusCode::from_u16(code).unwrap(),
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn what_can_pass_is_retryable() {
        for code in [429, 500, 502, 503, 504] {
            assert!(status(code, "No cluster leader").is_retryable(), "{code}");
        }
        for code in [301, 400, 401, 403, 404, 405, 409, 413, 501] {
            assert!(!status(code, "x").is_retryable(), "{code}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let lost =
            Error::Transport { operation: "kv.get", address: "x".into(), source: refused.into() };
        assert!(lost.is_retryable());
    }

    #[test]
    fn a_permanent_fault_that_answers_500_is_not_retryable() {
        for text in [
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
            "rpc error making call: failed session lookup: index error: UUID must be 36 characters",
            "Failed to create boolean expression evaluator: 1:5 (4): no match found",
        ] {
            assert!(!status(500, text).is_retryable(), "{text}");
        }
    }

    #[test]
    fn the_text_keeps_the_shape_that_operators_grep_for() {
        assert_eq!(
            status(500, "No cluster leader").to_string(),
            "kv.get: Unexpected response code: 500 (No cluster leader)"
        );
        assert!(status(404, "").is_not_found());
        assert!(status(403, "").is_permission_denied() && status(401, "").is_permission_denied());
    }

    /// Each variant as a person reads it: its own text, and with its causes.
    #[test]
    fn every_error_says_what_failed_and_with_what() {
        let (operation, address) = ("kv.put", "https://consul:8501".to_owned());
        let source = || BoxError::from("the cause");
        let table = [
            (
                Error::Transport { operation, address: address.clone(), source: source() },
                "kv.put: request to https://consul:8501 did not complete",
            ),
            (
                Error::Timeout { operation, address, after: Duration::from_millis(1500) },
                "kv.put: no answer from https://consul:8501 within 1.5 s",
            ),
            (
                status(403, "Permission denied: token lacks 'key:write' on \"app\""),
                "kv.get: Unexpected response code: 403 (Permission denied: token lacks 'key:write' on \"app\")",
            ),
            (Error::Decode { operation, source: source() }, "kv.put: cannot read Consul's answer"),
            (
                Error::Input { operation, problem: "a name is empty".to_owned() },
                "kv.put: a name is empty",
            ),
            (
                Error::config("CONSUL_HTTP_ADDR", "write host:port"),
                "CONSUL_HTTP_ADDR: write host:port",
            ),
            (
                Error::MissingFeature { setting: "CONSUL_CACERT", feature: "tls" },
                "CONSUL_CACERT: this program was built without the feature `tls`, which it needs",
            ),
            (Error::Other { operation, retryable: true, source: source() }, "kv.put failed"),
        ];
        let mut variants = 0;
        for (at, (error, text)) in table.iter().enumerate() {
            // Without a wildcard: a new variant does not compile until it has a row.
            let (row, causes) = match error {
                Error::Transport { .. } => (0, true),
                Error::Timeout { .. } => (1, false),
                Error::Status { .. } => (2, false),
                Error::Decode { .. } => (3, true),
                Error::Input { .. } => (4, false),
                Error::Config { .. } => (5, false),
                Error::MissingFeature { .. } => (6, false),
                Error::Other { .. } => (7, true),
            };
            assert_eq!((row, error.to_string().as_str()), (at, *text));
            let chain = if causes { format!("{text}: the cause") } else { (*text).to_owned() };
            assert_eq!(error_chain(error), chain);
            variants += 1;
        }
        assert_eq!(variants, 8);
    }

    /// The smaller error types of this crate, in the same way.
    #[test]
    fn the_other_errors_say_what_failed_and_with_what() {
        use crate::{GoDuration, transport::TransportError, types::SessionId};

        let shown = |error: &(dyn std::error::Error + 'static)| error_chain(error);
        let after = Duration::from_secs(10);
        assert_eq!(shown(&TransportError::Timeout { after }), "no answer within 10 s");
        let failed = TransportError::Failed { source: "connection refused".into() };
        assert_eq!(shown(&failed), "the exchange did not complete: connection refused");
        assert_eq!(shown(&"".parse::<SessionId>().unwrap_err()), "a session id cannot be empty");
        let duration = "5 minutes".parse::<GoDuration>().unwrap_err().to_string();
        assert!(duration.starts_with("invalid duration \"5 minutes\": "), "{duration}");
        assert!(
            duration.ends_with("; write it like \"30s\", \"1m30s\" or \"500ms\""),
            "{duration}"
        );
    }
}
