//! The page of the watches: what is read of Consul, and how that goes.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use consul_watch::{
    error_chain,
    watch::{Connection, Liveness, Load, WatchReport},
};

use super::{
    page::{Frame, Viewer, render},
    show::coarse,
    state::UiState,
};

/// Watches on the page: those that fail come first.
const MOST: usize = 500;

#[derive(Template)]
#[template(path = "ui/watches.html")]
struct WatchesPage {
    frame: Frame,
    search: String,
    load: Load,
    failing: usize,
    found: usize,
    rows: Vec<Row>,
}

struct Row {
    key: String,
    label: &'static str,
    class: &'static str,
    connection: &'static str,
    age: String,
    shared_by: usize,
    requests: u64,
    error: Option<String>,
}

/// `GET /ui/watches`
pub(super) async fn page(
    State(state): State<UiState>,
    viewer: Viewer,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Response {
    let search = parameters.iter().find(|(name, _value)| name == "q");
    let search: String =
        search.map(|(_, text)| text.chars().take(200).collect()).unwrap_or_default();
    let watcher = state.engine.watcher();
    let mut reports = watcher.reports();
    let failing = reports.iter().filter(|report| is_failing(report)).count();
    reports.retain(|report| report.key.as_str().contains(search.trim()));
    reports.sort_by_key(|report| !is_failing(report));
    let page = WatchesPage {
        frame: Frame::new(&state, &viewer, "Watches", "/ui/watches"),
        load: watcher.load(),
        failing,
        found: reports.len(),
        rows: reports.into_iter().take(MOST).map(Row::of).collect(),
        search,
    };
    render(StatusCode::OK, &page)
}

fn is_failing(report: &WatchReport) -> bool {
    report.state.consecutive_failures > 0
}

impl Row {
    fn of(report: WatchReport) -> Self {
        let state = report.state;
        let (label, class) = match state.liveness {
            Liveness::Starting => ("Starting", "unknown"),
            Liveness::Live => ("Live", "successful"),
            Liveness::Degraded => ("Failing", "errored"),
            Liveness::Ended => ("Ended", "critical"),
            _ => ("Other", "unknown"),
        };
        let age = state.last_success.map(|last| last.elapsed().unwrap_or(Duration::ZERO));
        Self {
            key: report.key.to_string(),
            label,
            class,
            connection: match state.connection {
                Connection::None => "none yet",
                Connection::Own => "its own",
                Connection::Covered => "broad queries",
                Connection::RoundRobin => "in turn",
                Connection::Polled => "polls",
                _ => "another",
            },
            age: age.map_or("never".to_owned(), |age| format!("{} ago", coarse(age))),
            shared_by: report.subscribers,
            requests: state.requests,
            error: state.last_error.map(|error| {
                format!("{} in a row: {}", state.consecutive_failures, error_chain(error.cause()))
            }),
        }
    }
}
