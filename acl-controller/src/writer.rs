//! The only way by which reconcilers change anything, so that a dry run is safe and every change is
//! logged and counted once.

use std::sync::{Mutex, PoisonError};

use crate::{Change, Result, telemetry};

/// Carries out changes and records them; in a dry run it only records them.
#[derive(Debug, Default)]
pub struct Writer {
    dry_run: bool,
    changes: Mutex<Vec<Change>>,
}

impl Writer {
    /// Creates a writer that carries changes out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a writer for a dry run.
    pub fn dry_run() -> Self {
        Self { dry_run: true, changes: Mutex::default() }
    }

    /// Returns `true` in a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the changes so far, made or planned, in this order.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change; `None` in a dry run, in which `call` is not awaited.
    ///
    /// A dry run records a change once, however often it comes: the first one changed nothing, so
    /// it is needed again.
    ///
    /// # Errors
    ///
    /// The error of `call`; the change is not recorded then.
    pub async fn write<T>(
        &self,
        change: Change,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<Option<T>> {
        if self.dry_run {
            let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            if !changes.contains(&change) {
                tracing::info!(change = %change, "would change");
                changes.push(change);
            }
            return Ok(None);
        }
        let done = call.await?;
        tracing::info!(change = %change, "changed");
        telemetry::changed(&change);
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        Ok(Some(done))
    }
}
