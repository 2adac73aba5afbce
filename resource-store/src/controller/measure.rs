//! The metrics of controllers, through the facade `metrics`.
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | `resource_store_controller_reconcile_seconds` | histogram | `controller`, `outcome` (`ok`, `error`) | time of a reconcile |
//! | `resource_store_controller_retries_total` | counter | `controller` | reconciles that failed or panicked, and are repeated |
//! | `resource_store_controller_queue_depth` | gauge | `controller` | requests that wait, after each reconcile |

use std::time::Duration;

/// Counts a reconcile that has ended.
pub(super) fn reconciled(controller: &str, waiting: usize, took: Duration, ok: bool) {
    let name = controller.to_owned();
    let outcome = if ok { "ok" } else { "error" };
    metrics::histogram!(
        "resource_store_controller_reconcile_seconds",
        "controller" => name.clone(), "outcome" => outcome
    )
    .record(took);
    if !ok {
        metrics::counter!("resource_store_controller_retries_total", "controller" => name.clone())
            .increment(1);
    }
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    metrics::gauge!("resource_store_controller_queue_depth", "controller" => name).set(waiting);
}
