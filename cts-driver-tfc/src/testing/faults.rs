//! Faults that a test can put into requests.

use std::time::Duration;

use http::Method;

/// Fault of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is answered with this status, and has no effect.
    Status(u16),
    /// The request has its effect, and is answered with 502.
    AnswerLost,
    /// The request is turned away by the rate limit, for this time from now.
    RateLimit(Duration),
}

#[derive(Debug)]
pub(super) struct ActiveFault {
    pub(super) method: Option<Method>,
    pub(super) path: String,
    pub(super) fault: Fault,
    pub(super) left: usize,
}
