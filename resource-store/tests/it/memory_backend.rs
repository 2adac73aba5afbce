//! The memory backend passes the conformance suite, bare and behind pointers.

use std::sync::Arc;

use resource_store::backend::{Backend, memory::MemoryBackend};

async fn fixture() -> (Arc<dyn Backend>, ()) {
    (Arc::new(MemoryBackend::new()), ())
}

resource_store::storage_conformance!(fixture());

mod boxed {
    use super::*;

    async fn fixture() -> (Arc<dyn Backend>, ()) {
        (Arc::new(Box::new(MemoryBackend::new())), ())
    }

    resource_store::storage_conformance!(fixture());
}
