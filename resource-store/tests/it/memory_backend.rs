//! The memory backend passes the conformance suite, bare and behind pointers.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use resource_store::backend::{Backend, memory::MemoryBackend};

fn fixture() -> Ready<(Arc<dyn Backend>, ())> {
    ready((Arc::new(MemoryBackend::new()), ()))
}

resource_store::storage_conformance!(fixture());

mod boxed {
    use super::*;

    fn fixture() -> Ready<(Arc<dyn Backend>, ())> {
        ready((Arc::new(Box::new(MemoryBackend::new())), ()))
    }

    resource_store::storage_conformance!(fixture());
}
