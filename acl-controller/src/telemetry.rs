//! Metrics of the controller, through the `metrics` facade.
//!
//! A program installs the recorder of its choice; without one nothing is kept. No label grows with
//! the number of services or tasks.
//!
//! | name | type | labels | what |
//! |---|---|---|---|
//! | `acl_controller_passes_total` | counter | `outcome` | passes that ended: `complete`, `partial` (something failed or was put off), `failed` (nothing was done) |
//! | `acl_controller_pass_seconds` | histogram | | their duration |
//! | `acl_controller_last_complete_pass_timestamp_seconds` | gauge | | when the last complete one ended, in Unix time |
//! | `acl_controller_tasks` | gauge | `state` | tasks of the last listing: `meshed`, `skipped` |
//! | `acl_controller_resources` | gauge | | services, or tasks with tokens, of the last listing |
//! | `acl_controller_postponed` | gauge | | resources that the last pass put off |
//! | `acl_controller_changes_total` | counter | `action`, `object` | changes that were made |
//! | `acl_controller_errors_total` | counter | `kind` | failures: `config`, `input`, `consul`, `other` |

use std::time::Duration;

use crate::{Change, Error, Report};

pub(crate) fn changed(change: &Change) {
    metrics::counter!("acl_controller_changes_total",
        "action" => change.action.as_str(), "object" => change.object.as_str())
    .increment(1);
}

/// Counts errors, each by its innermost kind.
pub(crate) fn failed(error: &Error) {
    let kind = match error {
        Error::Config { .. } => "config",
        Error::Input { .. } => "input",
        Error::Consul { .. } => "consul",
        Error::Other { .. } => "other",
        Error::Step { source, .. } => return failed(source),
        Error::Several { errors } => return errors.iter().for_each(failed),
    };
    metrics::counter!("acl_controller_errors_total", "kind" => kind).increment(1);
}

/// Records the outcome of a pass; `at` is the Unix time of its end.
pub(crate) fn passed(outcome: &Result<Report, Error>, took: Duration, at: Duration) {
    let word = match outcome {
        Ok(report) if report.is_complete() => "complete",
        Ok(_) => "partial",
        Err(_) => "failed",
    };
    metrics::counter!("acl_controller_passes_total", "outcome" => word).increment(1);
    metrics::histogram!("acl_controller_pass_seconds").record(took);
    match outcome {
        Ok(report) => {
            if report.is_complete() {
                metrics::gauge!("acl_controller_last_complete_pass_timestamp_seconds")
                    .set(at.as_secs_f64());
            }
            metrics::gauge!("acl_controller_tasks", "state" => "meshed").set(count(report.tasks));
            metrics::gauge!("acl_controller_tasks", "state" => "skipped")
                .set(count(report.skipped));
            metrics::gauge!("acl_controller_resources").set(count(report.resources));
            metrics::gauge!("acl_controller_postponed").set(count(report.postponed));
            report.errors.iter().for_each(failed);
        }
        Err(error) => failed(error),
    }
}

/// Converts a count, which fits into 32 bits for any real cluster, without loss to a gauge's value.
fn count(number: usize) -> f64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}
