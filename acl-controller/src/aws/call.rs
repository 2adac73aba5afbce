use std::fmt;

use aws_sdk_ecs::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use consul_watch::error_chain;

use crate::Error;

/// What AWS says when it has too much to do or is not well; the same call may succeed later.
const PASSING: &[&str] = &[
    "ExpiredTokenException",
    "InternalFailure",
    "InternalServerException",
    "InternalServiceError",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServerException",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// Why a call to AWS did not succeed.
///
/// It holds nothing of the exchange but what the service says of the error, since a request or an
/// answer may hold a token.
#[derive(Debug)]
pub(super) struct CallError {
    code: Option<String>,
    message: String,
    retryable: bool,
}

impl CallError {
    /// Whether the service answered with this code.
    pub(super) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The error of the crate, with what was being done.
    pub(super) fn during(self, operation: impl Into<String>) -> Error {
        Error::Other {
            operation: operation.into(),
            retryable: self.retryable,
            // AWS says it in no header that its SDK passes on.
            retry_after: None,
            source: Box::new(self),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) if self.message.is_empty() => f.write_str(code),
            Some(code) => write!(f, "{code}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for CallError {}

impl<E> From<SdkError<E, HttpResponse>> for CallError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        let transport = |message: String| Self { code: None, message, retryable: true };
        // The chain could quote the answer.
        let unreadable = || transport("the answer cannot be read".to_owned());
        match &error {
            // What was to be a success; it could be quoted.
            SdkError::ServiceError(answer) if answer.raw().status().is_success() => unreadable(),
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                let code = refusal.err().code().map(str::to_owned);
                let passing = code.as_deref().is_some_and(|code| PASSING.contains(&code));
                let message = match (&code, refusal.err().message()) {
                    (_, Some(message)) => message.to_owned(),
                    (Some(_), None) => String::new(),
                    (None, None) => format!("status {status} without an error code"),
                };
                Self { code, message, retryable: passing || status >= 500 || status == 429 }
            }
            // No credentials, say, or nobody there.
            SdkError::ConstructionFailure(_) | SdkError::DispatchFailure(_) => {
                transport(error_chain(&error))
            }
            SdkError::TimeoutError(_) => transport("no answer in time".to_owned()),
            SdkError::ResponseError(_) => unreadable(),
            _ => transport("the call did not take place".to_owned()),
        }
    }
}
