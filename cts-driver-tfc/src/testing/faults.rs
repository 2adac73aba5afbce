use std::time::Duration;

use http::Method;

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is answered with this status, and has no effect.
    Status(u16),
    /// It has its effect, and is answered with 502.
    AnswerLost,
    /// It is turned away by the rate limit, until so long from now.
    RateLimit(Duration),
}

#[derive(Debug)]
pub(super) struct ActiveFault {
    pub(super) method: Option<Method>,
    pub(super) path: String,
    pub(super) fault: Fault,
    pub(super) left: usize,
}
