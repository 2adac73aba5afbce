//! Keeps alive what dynamic values need for as long as drivers may ask for them.

use std::sync::{Arc, OnceLock};

use tokio::task::AbortHandle;

use super::ValueSource;

/// Runs [`ValueSource::keep_alive`] in the background until it is dropped.
#[derive(Debug, Default)]
pub struct Keeper(OnceLock<AbortHandle>);

impl Keeper {
    /// Begins; further calls do nothing.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn start(&self, values: &Arc<dyn ValueSource>) {
        let values = Arc::clone(values);
        self.0
            .get_or_init(|| tokio::spawn(async move { values.keep_alive().await }).abort_handle());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(work) = self.0.get() {
            work.abort();
        }
    }
}
