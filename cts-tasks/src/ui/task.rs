//! The page of one task.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, Local};

use super::{
    chart::Chart,
    page::{Frame, Problem, Viewer, render},
    show::{Moment, between, fine},
    state::UiState,
    tasks::{next_run, state_of, step, waits_for, words},
};
use crate::{
    Action, BufferPeriod, Changes, Condition, Error, Event, ServiceSelection, Task, TaskName,
    api::inputs_document,
    engine::Engine,
    wire::{Difference, InputsDocument, PlanDocument, SinceApplied},
};

/// Lines of inputs that are shown; a task may have thousands.
const LINES: usize = 200;

#[derive(Template)]
#[template(path = "ui/task.html")]
struct TaskPage {
    frame: Frame,
    name: String,
    description: String,
    enabled: bool,
    label: &'static str,
    class: &'static str,
    doing: Option<String>,
    waits: Option<String>,
    next: Option<Moment>,
    facts: Vec<(&'static str, String)>,
    plan: Option<PlanView>,
    inputs: Option<Inputs>,
    events: Vec<EventRow>,
    chart: Chart,
    drift: Option<Drift>,
}

struct PlanView {
    id: String,
    objection: String,
    since: Moment,
    changes: ChangesView,
    text: String,
    url: Option<String>,
}

struct ChangesView {
    counts: String,
    addresses: Vec<(String, &'static str, &'static str)>,
    more: u64,
}

struct Inputs {
    lines: Vec<String>,
    more: usize,
    state: &'static str,
    difference: Option<Difference>,
}

struct EventRow {
    time: Moment,
    took: String,
    label: &'static str,
    class: &'static str,
    detail: String,
    error: Option<String>,
}

struct Drift {
    at: Moment,
    changes: Option<ChangesView>,
    error: Option<String>,
}

/// `GET /ui/tasks/{name}`
pub(super) async fn page(
    State(state): State<UiState>,
    Path(name): Path<String>,
    viewer: Viewer,
) -> Response {
    let shown = TaskName::try_from(name.clone()).ok().and_then(|task| {
        let frame = Frame::new(&state, &viewer, format!("Task {name}"), "/ui/");
        view(&state.engine, &task, frame.following(Some(&name)))
    });
    match shown {
        Some(page) => render(StatusCode::OK, &page),
        None => Problem::from(Error::NoSuchTask { task: name }).show(),
    }
}

fn view(engine: &Engine, name: &TaskName, frame: Frame) -> Option<TaskPage> {
    let now = engine.now();
    let work = engine.under_way().remove(name);
    let inputs = inputs_of(engine, name);
    let waits = waits_for(engine, name);
    engine.state(|stored| {
        let task = stored.tasks.iter().find(|task| task.name == *name)?;
        let (label, class) = words(state_of(task, stored, work.as_ref()));
        let events = stored.events.get(name).map_or(&[][..], Vec::as_slice);
        let drift = stored.drift.get(name).map(|check| Drift {
            at: Moment::of(check.at, now),
            changes: check.changes.as_ref().map(ChangesView::of),
            error: check.error.clone(),
        });
        Some(TaskPage {
            name: task.name.to_string(),
            description: task.description.clone(),
            enabled: task.enabled,
            label,
            class,
            doing: work.as_ref().map(|work| step(work, now)),
            waits: waits.filter(|_| task.enabled),
            next: next_run(task, now).map(|next| Moment::of(next, now)),
            facts: facts(task),
            plan: stored.plans.get(name).cloned().and_then(PlanDocument::of).map(|plan| {
                PlanView {
                    id: plan.id.to_string(),
                    objection: plan.objection,
                    since: Moment::of(plan.since, now),
                    changes: ChangesView::of(&plan.changes),
                    text: plan.text,
                    // The tool's own address; another scheme would be a script, say.
                    url: plan.url.filter(|url| url.starts_with("https://")),
                }
            }),
            inputs,
            events: events.iter().map(|event| EventRow::of(event, now)).collect(),
            chart: Chart::of(events.iter().rev().map(bar)),
            drift,
            frame,
        })
    })
}

fn bar(event: &Event) -> (String, &'static str, std::time::Duration) {
    let label = event.end_time.format("%H:%M:%S").to_string();
    (label, result(event).1, between(event.start_time, event.end_time))
}

/// Returns the result of a run, for people and in the style sheet.
fn result(event: &Event) -> (&'static str, &'static str) {
    match event {
        Event { success: true, .. } => ("Successful", "successful"),
        Event { waiting_plan: Some(_), .. } => ("Plan waits", "waiting"),
        _ => ("Failed", "errored"),
    }
}

impl EventRow {
    fn of(event: &Event, now: DateTime<Local>) -> Self {
        let (label, class) = result(event);
        let counts = event.changes.as_ref().map(counts);
        let notes = event.notes.iter().cloned();
        Self {
            time: Moment::of(event.end_time, now),
            took: fine(between(event.start_time, event.end_time)),
            label,
            class,
            detail: counts.into_iter().chain(notes).collect::<Vec<_>>().join("; "),
            error: event.error.as_ref().map(|error| error.message.clone()),
        }
    }
}

fn counts(changes: &Changes) -> String {
    if changes.is_empty() {
        return "no changes".to_owned();
    }
    if changes.outputs_only {
        return "only outputs change".to_owned();
    }
    format!("{} to add, {} to change, {} to destroy", changes.add, changes.change, changes.destroy)
}

impl ChangesView {
    fn of(changes: &Changes) -> Self {
        let address = |(address, action): (&String, &Action)| {
            let (sign, word) = match action {
                Action::Create => ("+", "create"),
                Action::Update => ("~", "update"),
                Action::Delete => ("−", "destroy"),
                Action::Replace => ("±", "replace"),
            };
            (address.clone(), sign, word)
        };
        let addresses = changes.addresses.iter().map(address).collect();
        Self { counts: counts(changes), addresses, more: changes.more }
    }
}

fn inputs_of(engine: &Engine, name: &TaskName) -> Option<Inputs> {
    let current = engine.inputs(name).ok()?;
    let (now, digest) = current.now?;
    let found: InputsDocument = inputs_document(&now, &digest, current.applied.as_ref());
    let mut lines = found.lines();
    let more = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    let (state, difference) = match found.since_applied {
        SinceApplied::Never => ("Nothing was applied yet.", None),
        SinceApplied::Same => ("These are the inputs that were last applied.", None),
        SinceApplied::Differs { difference: None } => {
            ("They differ from those that were last applied.", None)
        }
        SinceApplied::Differs { difference } => {
            ("They differ from those that were last applied:", difference.map(bounded))
        }
    };
    Some(Inputs { lines, more, state, difference })
}

fn bounded(mut difference: Difference) -> Difference {
    for lines in [&mut difference.added, &mut difference.changed, &mut difference.removed] {
        if lines.len() > LINES {
            let more = lines.len() - LINES;
            lines.truncate(LINES);
            lines.push(format!("… and {more} more"));
        }
    }
    difference
}

fn facts(task: &Task) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Condition", condition(task))];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let module = filled(&task.module);
    let version = task.version.as_deref().map(|version| format!(", version {version}"));
    add("Module", module.map(|module| module + version.as_deref().unwrap_or_default()));
    add("Providers", filled(&task.providers.join(", ")));
    add(
        "Buffer period",
        match task.buffer_period {
            BufferPeriod::Disabled => Some("none".to_owned()),
            BufferPeriod::Enabled { min, max } => {
                Some(format!("{} of quiet, at most {}", fine(min), fine(max)))
            }
        },
    );
    let guard = &task.guard;
    let approval = guard.require_approval.then(|| "every plan needs approval".to_owned());
    let limit = guard.max_destroy.map(|most| format!("at most {most} resources destroyed"));
    let guard: Vec<String> = approval.into_iter().chain(limit).collect();
    add("Guard", filled(&guard.join("; ")));
    add("Looks for drift", task.drift_check.clone());
    add("Time limit", task.timeout.map(fine));
    add("Working directory", filled(&task.working_dir.display().to_string()));
    facts
}

fn condition(task: &Task) -> String {
    match &task.condition {
        Condition::Services { services: ServiceSelection::Named(named), .. } => {
            let names: Vec<&str> = named.iter().map(|service| service.name.as_str()).collect();
            format!("instances of {}", names.join(", "))
        }
        Condition::Services { services: ServiceSelection::Matching(services), .. } => {
            format!("instances of services that match {}", services.regexp)
        }
        Condition::CatalogServices { services, .. } => {
            format!("services that match {} come or go", services.regexp)
        }
        Condition::ConsulKv { keys, .. } if keys.recurse => format!("keys below {}", keys.path),
        Condition::ConsulKv { keys, .. } => format!("the key {}", keys.path),
        Condition::Schedule { cron } => format!("the schedule {cron}"),
    }
}
