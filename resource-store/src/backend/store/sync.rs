//! The locks of backends, in one place so that a model checker can put its
//! own in their stead.

pub(crate) use std::sync::{Arc, Mutex};
use std::sync::{MutexGuard, PoisonError};

/// Locks; a panic of another holder does not matter, because every change
/// under these locks is complete or not begun when code that may panic runs.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks away from the executor.
#[cfg(any(feature = "durable", feature = "raft"))]
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> crate::backend::Result<T> + Send + 'static,
) -> crate::backend::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(crate::backend::Error::Other {
            operation: "read",
            retryable: true,
            source: Box::new(error),
        })
    })
}
