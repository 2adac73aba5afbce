//! Calls to AWS: classification of their errors, and retries of throttled ones.

use std::{fmt, time::Duration};

use aws_sdk_ecs::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use consul_watch::{Backoff, error_chain};
use tokio::time::{Instant, sleep};

use crate::Error;

/// Error codes of a used-up quota of calls per second.
const THROTTLED: &[&str] =
    &["RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"];

/// First and longest pause before a throttled call is repeated, before jitter.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// Makes a call, and repeats it while AWS throttles it, for at most `patience`.
///
/// The SDK retries a few times by itself. A quota that a burst of work has used up takes longer to
/// recover, and is no failure: the pass goes on as fast as the quota allows.
///
/// # Cancel safety
///
/// Dropping the future abandons the call, which may have taken effect.
pub(super) async fn paced<T, E, F>(patience: Duration, call: impl Fn() -> F) -> Result<T, CallError>
where
    E: Into<CallError>,
    F: Future<Output = Result<T, E>>,
{
    let begin = Instant::now();
    let mut pauses = Backoff::default().with_initial(PAUSES.0).with_cap(PAUSES.1);
    loop {
        let error = match call().await.map_err(Into::into) {
            Err(error) if error.is_throttled() => error,
            outcome => return outcome,
        };
        let pause = pauses.next_delay();
        // Checked before the sleep: an attempt after the limit would be in vain.
        if begin.elapsed() + pause > patience {
            return Err(error);
        }
        tracing::debug!(error = %error, ?pause, "AWS throttles: the call is made again");
        sleep(pause).await;
    }
}

/// Error codes of a temporary fault of AWS; the same call may succeed later.
const PASSING: &[&str] = &[
    "ExpiredTokenException",
    "InternalFailure",
    "InternalServerException",
    "InternalServiceError",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServerException",
    "ServiceUnavailable",
];

/// Error of a call to AWS.
///
/// It keeps only the service's own description of the error, since a request or response may hold a
/// token.
#[derive(Debug)]
pub(super) struct CallError {
    code: Option<String>,
    message: String,
    retryable: bool,
}

impl CallError {
    /// Returns `true` if the service answered with this error code.
    pub(super) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Returns `true` if a quota was used up.
    fn is_throttled(&self) -> bool {
        self.code.as_deref().is_some_and(|code| THROTTLED.contains(&code))
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Converts it to the crate's error, with the operation that failed.
    pub(super) fn during(self, operation: impl Into<String>) -> Error {
        Error::Other {
            operation: operation.into(),
            retryable: self.retryable,
            // AWS sends the wait in no header that its SDK exposes.
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
        // The source chain could quote the response.
        let unreadable = || transport("the answer cannot be read".to_owned());
        match &error {
            // A response that was to be a success and could not be parsed; its text may hold a
            // secret.
            SdkError::ServiceError(answer) if answer.raw().status().is_success() => unreadable(),
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                let code = refusal.err().code().map(str::to_owned);
                let passing = code
                    .as_deref()
                    .is_some_and(|code| PASSING.contains(&code) || THROTTLED.contains(&code));
                let message = match (&code, refusal.err().message()) {
                    (_, Some(message)) => message.to_owned(),
                    (Some(_), None) => String::new(),
                    (None, None) => format!("status {status} without an error code"),
                };
                Self { code, message, retryable: passing || status >= 500 || status == 429 }
            }
            // Missing credentials, for example, or nobody listens.
            SdkError::ConstructionFailure(_) | SdkError::DispatchFailure(_) => {
                transport(error_chain(&error))
            }
            SdkError::TimeoutError(_) => transport("no answer in time".to_owned()),
            SdkError::ResponseError(_) => unreadable(),
            _ => transport("the call did not take place".to_owned()),
        }
    }
}
