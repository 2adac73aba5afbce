//! What happened to runs, and what people said about them.

use serde_json::{Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    clock,
    organization_routes::USER,
    route::Asked,
    state::{Run, State},
};

/// Something that happened to a run.
#[derive(Debug, Clone)]
pub(super) struct RunEvent {
    /// `created`, `commented`, or the status that the run entered.
    action: String,
    created_at: String,
    /// Id of the comment that came with it.
    comment: Option<String>,
}

impl Run {
    /// Enters a status, and notes when.
    pub(super) fn set_status(&mut self, status: &str) {
        status.clone_into(&mut self.status);
        let name = format!("{}-at", status.replace('_', "-"));
        self.timestamps.insert(name, clock::now());
        self.note(status, None);
    }

    /// Notes something that happened.
    pub(super) fn note(&mut self, action: &str, comment: Option<String>) {
        let created_at = clock::now();
        self.events.push(RunEvent { action: action.to_owned(), created_at, comment });
    }
}

/// Adds what a person said about a run, and returns its id.
pub(super) fn comment(state: &mut State, run: &str, body: &str) -> String {
    let id = state.id("wsc");
    if let Some(run) = state.runs.get_mut(run) {
        run.comments.push((id.clone(), body.to_owned()));
        run.note("commented", Some(id.clone()));
    }
    id
}

fn event_id(run: &str, index: usize) -> String {
    format!("{}-{index}", run.replacen("run", "re", 1))
}

fn event_document(run: &str, index: usize, event: &RunEvent) -> Value {
    let comment = event.comment.as_ref().map(|id| json!({"id": id, "type": "comments"}));
    json!({"id": event_id(run, index), "type": "run-events", "attributes": {
        "action": event.action, "created-at": event.created_at, "description": null,
    }, "relationships": {
        "run": {"data": {"id": run, "type": "runs"}},
        "actor": {"data": {"id": USER, "type": "users"}},
        "target": {"data": null}, "comment": {"data": comment},
    }})
}

fn comment_document(id: &str, body: &str, run: &str) -> Value {
    json!({"id": id, "type": "comments", "attributes": {"body": body}, "relationships": {
        "run-event": {"data": null}, "run": {"data": {"id": run, "type": "runs"}},
    }})
}

/// Answers for the events and comments of a run.
pub(super) fn of_run(tfc: &TestTfc, asked: &Asked<'_>, id: &str, what: &str) -> Answer {
    if !tfc.state().runs.contains_key(id) {
        return answer::not_found();
    }
    match (asked.method.as_str(), what) {
        ("GET", "run-events") => {
            let state = tfc.state();
            let events = state.runs.get(id).map(|run| run.events.as_slice()).unwrap_or_default();
            let events = events.iter().enumerate();
            let events = events.map(|(index, event)| event_document(id, index, event));
            answer::page(&events.collect::<Vec<_>>(), asked.query)
        }
        ("GET", "comments") => {
            let state = tfc.state();
            let said = state.runs.get(id).map(|run| run.comments.as_slice()).unwrap_or_default();
            let said = said.iter().map(|(comment, body)| comment_document(comment, body, id));
            answer::page(&said.collect::<Vec<_>>(), asked.query)
        }
        ("POST", "comments") => {
            let body = asked.body.pointer("/data/attributes/body").and_then(Value::as_str);
            let Some(body) = body.filter(|body| !body.is_empty()) else {
                return answer::error(422, "invalid attribute", "Body can't be blank");
            };
            let comment = tfc.change(|state| comment(state, id, body));
            answer::document(201, &json!({"data": comment_document(&comment, body, id)}))
        }
        _ => answer::not_found(),
    }
}

/// Answers for an event or a comment by its id.
pub(super) fn by_id(state: &State, kind: &str, id: &str) -> Answer {
    let found = state.runs.iter().find_map(|(run_id, run)| {
        if kind == "comments" {
            let (_, body) = run.comments.iter().find(|(comment, _)| comment == id)?;
            return Some(comment_document(id, body, run_id));
        }
        let mut events = run.events.iter().enumerate();
        let (index, event) = events.find(|(index, _)| event_id(run_id, *index) == id)?;
        Some(event_document(run_id, index, event))
    });
    match found {
        Some(found) => answer::document(200, &json!({ "data": found })),
        None => answer::not_found(),
    }
}
