//! The first page: all tasks.

use std::{collections::BTreeMap, time::Duration};

use askama::Template;
use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, Local};

use super::{
    page::{Frame, Viewer, render},
    show::{Moment, between, coarse, fine},
    state::UiState,
};
use crate::{
    Condition, Cron, Engine, State as Stored, Status, Task, TaskName, UnderWay, WorkStep,
    engine::WaitsFor,
};

/// Tasks on one page.
const ON_PAGE: usize = 100;

#[derive(Template)]
#[template(path = "ui/tasks.html")]
struct TasksPage {
    frame: Frame,
    filters: Vec<Filter>,
    search: String,
    status: String,
    rows: Vec<Row>,
    /// Tasks that fit, on all pages.
    found: usize,
    all: usize,
    before: Option<String>,
    after: Option<String>,
    page: usize,
    pages: usize,
}

/// A link that shows the tasks of one state.
struct Filter {
    label: &'static str,
    class: &'static str,
    count: usize,
    url: String,
    chosen: bool,
}

struct Row {
    name: String,
    label: &'static str,
    class: &'static str,
    last: Option<Moment>,
    took: String,
    next: Option<Moment>,
    waits: String,
}

/// The selection that the query asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    search: String,
    status: String,
    /// From 1.
    page: usize,
}

impl Wanted {
    fn of(parameters: &[(String, String)]) -> Self {
        let get = |name: &str| -> String {
            let found = parameters.iter().find(|(key, _value)| key == name);
            found.map(|(_key, value)| value.chars().take(100).collect()).unwrap_or_default()
        };
        let page = get("page").parse().unwrap_or(1);
        Self { search: get("q").trim().to_owned(), status: get("status"), page: page.max(1) }
    }

    fn url(&self, status: &str, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.search.is_empty() {
            query.append_pair("q", &self.search);
        }
        if !status.is_empty() {
            query.append_pair("status", status);
        }
        if page > 1 {
            query.append_pair("page", &page.to_string());
        }
        match query.finish() {
            text if text.is_empty() => "/ui/".to_owned(),
            text => format!("/ui/?{text}"),
        }
    }
}

/// The words for a task's state: the name of the filter, for people, and in the style sheet.
const STATES: [(&str, &str, &str); 8] = [
    ("", "All", "all"),
    ("running", "Running", "running"),
    ("waiting", "Waiting for approval", "waiting"),
    ("critical", "Critical", "critical"),
    ("errored", "Errored", "errored"),
    ("successful", "Successful", "successful"),
    ("unknown", "Not run yet", "unknown"),
    ("disabled", "Disabled", "disabled"),
];

/// The state of a task in one word: what it does now counts before what it did.
pub(super) fn state_of(task: &Task, stored: &Stored, work: Option<&UnderWay>) -> &'static str {
    if work.is_some() {
        return "running";
    }
    if !task.enabled {
        return "disabled";
    }
    let events = stored.events.get(&task.name).map_or(&[][..], Vec::as_slice);
    Status::of(events, stored.plans.get(&task.name).map(|plan| &plan.id)).as_str()
}

/// A state's label and class.
pub(super) fn words(state: &str) -> (&'static str, &'static str) {
    let found = STATES.iter().find(|(name, ..)| *name == state);
    found.map_or(("Not run yet", "unknown"), |(_name, label, class)| (*label, *class))
}

/// `GET /ui/`
pub(super) async fn page(
    State(state): State<UiState>,
    viewer: Viewer,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Response {
    let wanted = Wanted::of(&parameters);
    let frame = Frame::new(&state, &viewer, "Tasks", "/ui/").following(None);
    render(StatusCode::OK, &tasks(&state.engine, wanted, frame))
}

fn tasks(engine: &Engine, wanted: Wanted, frame: Frame) -> TasksPage {
    let work = engine.under_way();
    let search = wanted.search.to_lowercase();
    let (mut counts, mut page) = (BTreeMap::<&str, usize>::new(), wanted.page);
    let (mut rows, found, all) = engine.state(|stored| {
        let mut fitting: Vec<(&Task, &'static str)> = Vec::new();
        for task in &stored.tasks {
            let state = state_of(task, stored, work.get(&task.name));
            *counts.entry(state).or_default() += 1;
            let is_wanted = wanted.status.is_empty() || wanted.status == state;
            if is_wanted && task.name.as_str().to_lowercase().contains(&search) {
                fitting.push((task, state));
            }
        }
        fitting.sort_unstable_by(|a, b| a.0.name.cmp(&b.0.name));
        page = page.min(fitting.len().div_ceil(ON_PAGE).max(1));
        let shown = fitting.iter().skip((page - 1) * ON_PAGE).take(ON_PAGE);
        let now = engine.now();
        let rows: Vec<(TaskName, Row)> =
            shown.map(|(task, state)| (task.name.clone(), row(task, state, stored, now))).collect();
        (rows, fitting.len(), stored.tasks.len())
    });
    // Outside of the state's lock: each looks at what its worker knows.
    for (name, row) in &mut rows {
        row.waits = waits(engine, name, row, work.get(name));
    }
    let pages = found.div_ceil(ON_PAGE).max(1);
    let filters = STATES.map(|(name, label, class)| Filter {
        label,
        class,
        count: if name.is_empty() { all } else { counts.get(name).copied().unwrap_or_default() },
        url: wanted.url(name, 1),
        chosen: wanted.status == name,
    });
    TasksPage {
        frame,
        filters: filters.into_iter().filter(|it| it.count > 0 || it.chosen).collect(),
        rows: rows.into_iter().map(|(_name, row)| row).collect(),
        found,
        all,
        before: (page > 1).then(|| wanted.url(&wanted.status, page - 1)),
        after: (page < pages).then(|| wanted.url(&wanted.status, page + 1)),
        page,
        pages,
        search: wanted.search,
        status: wanted.status,
    }
}

fn row(task: &Task, state: &str, stored: &Stored, now: DateTime<Local>) -> Row {
    let (label, class) = words(state);
    let newest = stored.events.get(&task.name).and_then(|events| events.first());
    Row {
        name: task.name.to_string(),
        label,
        class,
        last: newest.map(|event| Moment::of(event.end_time, now)),
        took: newest.map(|it| fine(between(it.start_time, it.end_time))).unwrap_or_default(),
        next: next_run(task, now).map(|next| Moment::of(next, now)),
        waits: if stored.deletions.contains_key(&task.name) {
            "its deletion".to_owned()
        } else {
            match &task.condition {
                Condition::Schedule { .. } => "its schedule".to_owned(),
                _ => "changes in Consul".to_owned(),
            }
        },
    }
}

/// The next time at which a task's schedule runs it.
pub(super) fn next_run(task: &Task, now: DateTime<Local>) -> Option<DateTime<Local>> {
    let Condition::Schedule { cron } = &task.condition else { return None };
    cron.parse::<Cron>().ok().filter(|_| task.enabled)?.next_after(&now)
}

fn waits(engine: &Engine, name: &TaskName, row: &Row, work: Option<&UnderWay>) -> String {
    if let Some(work) = work {
        return step(work, engine.now());
    }
    match row.class {
        "disabled" => "being enabled".to_owned(),
        "waiting" => "approval of its plan".to_owned(),
        _ => waits_for(engine, name).unwrap_or_else(|| row.waits.clone()),
    }
}

/// Returns the reason why a task waits beside changes, for a person.
pub(super) fn waits_for(engine: &Engine, name: &TaskName) -> Option<String> {
    let in_so_long = |left: Duration| coarse(left + Duration::from_secs(1));
    Some(match engine.waits_for(name)? {
        WaitsFor::Consul(1, first) => format!("Consul's answer to {first}"),
        WaitsFor::Consul(count, first) => {
            format!("Consul's answers to {first} and {} more", count - 1)
        }
        WaitsFor::Buffer(left) => {
            format!("the end of its buffer period, in {}", in_so_long(left))
        }
        WaitsFor::Retry(left) => format!("its next try, in {}", in_so_long(left)),
    })
}

/// Returns the work that is done on a task now.
pub(super) fn step(work: &UnderWay, now: DateTime<Local>) -> String {
    let step = match work.step {
        WorkStep::Prepare => "getting ready",
        WorkStep::Plan => "planning",
        WorkStep::Apply => "applying",
        WorkStep::Destroy => "destroying",
    };
    let since = coarse(between(work.since, now));
    match &work.progress {
        Some(line) => format!("{step} for {since}: {line}"),
        None => format!("{step} for {since}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_what_is_shown() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted =
            Wanted::of(&[pair("q", " a&b "), pair("status", "errored"), pair("page", "0")]);
        assert_eq!(wanted.url("errored", 3), "/ui/?q=a%26b&status=errored&page=3");
        assert_eq!((wanted.page, wanted.url("", 1)), (1, "/ui/?q=a%26b".to_owned()));
        assert_eq!(Wanted::of(&[]).url("", 1), "/ui/");
    }
}
