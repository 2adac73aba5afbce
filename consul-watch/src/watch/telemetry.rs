//! What is measured of watches: counted by the kind of a query, so that no label grows with the number
//! of services.

use std::time::Duration;

use crate::{
    query::QueryKey,
    telemetry::{Held, Text, count, keep},
};

/// Counts a shared read for as long as the value lives.
pub(super) fn view(key: &QueryKey) -> Held {
    Held::new("consul_watch_views", "kind", kind(key))
}

/// Counts a shared read by the way in which it waits for changes.
pub(super) fn place(place: &'static str) -> Held {
    Held::new("consul_watch_places", "place", place.into())
}

/// An event of a watch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happened {
    Update,
    Unchanged,
    Reset,
    Error,
    Repair,
}

/// Counts what happened to the watch with this key.
pub(super) fn event(key: &QueryKey, what: Happened) {
    let name = match what {
        Happened::Update => "consul_watch_updates_total",
        Happened::Unchanged => "consul_watch_unchanged_total",
        Happened::Reset => "consul_watch_resets_total",
        Happened::Error => "consul_watch_errors_total",
        Happened::Repair => "consul_watch_repairs_total",
    };
    count(name, &[("kind", kind(key))]);
}

/// Records how long a covered watch took to show what a broad query reported.
pub(super) fn delay(key: &QueryKey, took: Duration) {
    keep("consul_watch_delay_seconds", "kind", kind(key), took);
}

/// Returns the part of a key before its parameters.
fn kind(key: &QueryKey) -> Text {
    if cfg!(feature = "metrics") {
        let text = key.as_str();
        text.split(['(', '{', '[', ' ', '"']).next().unwrap_or(text).to_owned().into()
    } else {
        Text::default()
    }
}
