//! What is logged, at every level.

use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Does the work twice, and returns all that it logs.
///
/// A place in the code that another test's thread comes to first, just as this subscriber is set,
/// is taken for one that nobody listens to. After one run all places are known, and looking at them
/// anew settles it.
pub(crate) fn logged(mut work: impl AsyncFnMut()) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(work());
        tracing::callsite::rebuild_interest_cache();
        runtime.block_on(work());
    });
    let bytes = log.0.lock().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
