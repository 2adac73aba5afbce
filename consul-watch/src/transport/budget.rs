use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits how many connections exchanges use together.
///
/// It travels in the extensions of a request. A transport with connections of its own
/// gives a part of it to each exchange, and takes it back when the exchange's
/// connection is idle or closed, not before. Over HTTP/2, where exchanges share a
/// connection, it is not asked.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    parts: Arc<Semaphore>,
}

impl Budget {
    pub(crate) fn new(connections: usize) -> Self {
        Self { parts: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))) }
    }

    /// One connection's part of it, as soon as there is one; those who wait get it in
    /// their order.
    pub(crate) async fn part(self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.parts.acquire_owned().await.ok()
    }
}
