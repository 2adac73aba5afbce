//! What is measured, through the `metrics` facade (feature `metrics`).
//!
//! A program installs the recorder of its choice; without one nothing is
//! kept. `kind` is the part of a query's key before its parameters, such as
//! `health.service`; `operation` names a client call in the same way, so
//! neither grows with the number of services.
//!
//! | name | type | labels | what |
//! |---|---|---|---|
//! | `consul_requests_total` | counter | `operation`, `status` | exchanges that ended; `status` is the HTTP status, `timeout` or `failed` |
//! | `consul_request_seconds` | histogram | `operation` | their duration, without those that may block |
//! | `consul_requests_open` | gauge | `blocks` | requests under way, each on its connection or HTTP/2 stream; `blocks` is `true` or `false` |
//! | `consul_watch_views` | gauge | `kind` | shared reads under way |
//! | `consul_watch_places` | gauge | `place` | the same by how they wait: `own`, `covered`, `turn` |
//! | `consul_watch_updates_total` | counter | `kind` | snapshots |
//! | `consul_watch_unchanged_total` | counter | `kind` | answers that came before their time and showed nothing new |
//! | `consul_watch_resets_total` | counter | `kind` | indexes that went backwards |
//! | `consul_watch_errors_total` | counter | `kind` | failed attempts |
//! | `consul_watch_repairs_total` | counter | `kind` | changes that no broad query reported, found by the periodic read of a covered watch |
//! | `consul_watch_delay_seconds` | histogram | `kind` | for a watch that broad queries stand in for: from their answer to its own |

use std::{borrow::Cow, time::Duration};

use crate::Error;

/// Value of a label.
pub(crate) type Text = Cow<'static, str>;

/// A unit of what a gauge counts, for as long as it lives.
#[derive(Debug)]
#[must_use]
pub(crate) struct Held {
    name: &'static str,
    label: (&'static str, Text),
}

impl Held {
    /// Counts one unit from now on.
    pub(crate) fn new(name: &'static str, label: &'static str, value: Text) -> Self {
        gauge(name, label, value.clone(), 1.0);
        Self { name, label: (label, value) }
    }

    pub(crate) fn request(blocks: bool) -> Self {
        Self::new("consul_requests_open", "blocks", if blocks { "true" } else { "false" }.into())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        gauge(self.name, self.label.0, self.label.1.clone(), -1.0);
    }
}

/// Counts an exchange, and keeps its duration unless it may block.
pub(crate) fn exchange<T>(
    operation: &'static str,
    outcome: &Result<http::Response<T>, Error>,
    took: Option<Duration>,
) {
    let status: Text = match outcome {
        Ok(answer) => answer.status().as_str().to_owned().into(),
        Err(Error::Timeout { .. }) => "timeout".into(),
        Err(_) => "failed".into(),
    };
    count("consul_requests_total", &[("operation", operation.into()), ("status", status)]);
    if let Some(took) = took {
        keep("consul_request_seconds", "operation", operation.into(), took);
    }
}

#[cfg(feature = "metrics")]
fn gauge(name: &'static str, label: &'static str, value: Text, by: f64) {
    metrics::gauge!(name, label => value).increment(by);
}

#[cfg(feature = "metrics")]
pub(crate) fn count(name: &'static str, labels: &[(&'static str, Text)]) {
    let labels: Vec<metrics::Label> =
        labels.iter().map(|(label, value)| metrics::Label::new(*label, value.clone())).collect();
    metrics::counter!(name, labels).increment(1);
}

#[cfg(feature = "metrics")]
pub(crate) fn keep(name: &'static str, label: &'static str, value: Text, took: Duration) {
    metrics::histogram!(name, label => value).record(took);
}

#[cfg(not(feature = "metrics"))]
fn gauge(_name: &'static str, _label: &'static str, _value: Text, _by: f64) {}

#[cfg(not(feature = "metrics"))]
pub(crate) fn count(_name: &'static str, _labels: &[(&'static str, Text)]) {}

#[cfg(not(feature = "metrics"))]
pub(crate) fn keep(_name: &'static str, _label: &'static str, _value: Text, _took: Duration) {}
