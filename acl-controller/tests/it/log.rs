//! What is logged, at every level.

use consul_watch::testing::Log;

/// Does the work on a runtime of its own, and returns all that it logs.
pub(crate) fn logged(work: impl AsyncFnOnce()) -> String {
    let log = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work());
    log.text()
}
