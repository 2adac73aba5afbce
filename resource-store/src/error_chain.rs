//! Errors with what caused them.

use std::error::Error;

/// An error, what caused it, and so on.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let source = |error: &&'e (dyn Error + 'static)| -> Option<&'e (dyn Error + 'static)> {
        (*error).source()
    };
    std::iter::successors(Some(error), source)
}

/// An error and what caused it, in one line.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns `true` if there was no connection, so that the request cannot have
/// arrived.
#[cfg(any(feature = "client", feature = "etcd", feature = "raft"))]
pub(crate) fn never_sent(status: &tonic::Status) -> bool {
    causes(status).any(<dyn Error>::is::<tonic::ConnectError>)
}
