//! What the service answers when it does not do what was asked.

use std::fmt;

/// The kind of a failure: the gRPC codes that the protocol uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The caller went away.
    Cancelled = 1,
    /// The outcome of a change is unknown, or the other side did not explain
    /// its failure.
    Unknown = 2,
    /// The request makes no sense, whatever is stored.
    InvalidArgument = 3,
    /// The request took too long.
    DeadlineExceeded = 4,
    /// There is no such resource.
    NotFound = 5,
    /// There is such a resource already.
    AlreadyExists = 6,
    /// The token does not allow it.
    PermissionDenied = 7,
    /// A limit was reached.
    ResourceExhausted = 8,
    /// The stored state forbids it, and repeating would not help.
    FailedPrecondition = 9,
    /// Someone else was faster; read again and repeat.
    Aborted = 10,
    /// A value is outside of its range.
    OutOfRange = 11,
    /// The method does not exist.
    Unimplemented = 12,
    /// The service or what it depends on failed, and repeating does not help.
    Internal = 13,
    /// The server cannot be reached, or lacks a leader or a majority for now.
    Unavailable = 14,
    /// Data was lost.
    DataLoss = 15,
    /// The token is not valid.
    Unauthenticated = 16,
}

impl Code {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The code of a number; unknown numbers, and 0, are `Unknown`.
    pub fn from_number(number: i32) -> Self {
        ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }

    /// The code of a name as it prints; other names are `Unknown`.
    #[cfg(any(test, feature = "http-client"))]
    pub(crate) fn from_name(name: &str) -> Self {
        ALL.into_iter().find(|code| code.to_string() == name).unwrap_or(Self::Unknown)
    }
}

/// Every code but success, which is no failure.
const ALL: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Go spells this one with a single l.
        if matches!(self, Self::Cancelled) {
            f.write_str("Canceled")
        } else {
            write!(f, "{self:?}")
        }
    }
}

/// A failure of a call: a code for programs and a message for people.
///
/// Prints the way Go's gRPC library does, because the HTTP API shows it so:
/// `rpc error: code = NotFound desc = resource not found`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct RpcError {
    code: Code,
    message: String,
}

impl RpcError {
    /// A failure of the given kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Reads a failure as it prints.
    #[cfg(any(test, feature = "http-client"))]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (code, message) = text.strip_prefix("rpc error: code = ")?.split_once(" desc = ")?;
        Some(Self::new(Code::from_name(code), message))
    }

    /// The kind.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns `true` if nothing was done and the same call may succeed later.
    ///
    /// `Aborted` is not: the caller has to read again first. Nor is what may
    /// have taken effect, see [`RpcError::outcome_is_unknown`].
    pub fn is_retryable(&self) -> bool {
        match self.code {
            Code::ResourceExhausted | Code::Unavailable => true,
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => false,
        }
    }

    /// Returns `true` if a change may have taken effect although its call
    /// failed: read the resource before repeating the change. A read, list or
    /// watch that ends so may be repeated as it is.
    pub fn outcome_is_unknown(&self) -> bool {
        matches!(self.code, Code::Cancelled | Code::Unknown | Code::DeadlineExceeded)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        for number in 1..=16 {
            assert_eq!(Code::from_number(number).number(), number);
        }
        assert_eq!(Code::from_number(99), Code::Unknown);
        assert_eq!(Code::InvalidArgument.number(), 3);
        assert_eq!(Code::Internal.number(), 13);
    }

    #[test]
    fn failures_print_like_those_of_go() {
        let error = RpcError::not_found("resource not found");
        assert_eq!(error.to_string(), "rpc error: code = NotFound desc = resource not found");
        assert_eq!(Code::Cancelled.to_string(), "Canceled");
        for number in 1..=16 {
            let error = RpcError::new(Code::from_number(number), "a desc = b\nc");
            assert_eq!(RpcError::parse(&error.to_string()), Some(error));
        }
        assert_eq!(RpcError::parse("404 page not found"), None);
    }
}
