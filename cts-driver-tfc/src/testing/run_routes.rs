//! Configuration versions, runs, plans and applies of the double.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    TestTfc,
    answer::{self, Answer},
    clock, life, query,
    route::{Asked, related},
    run_documents::{included, run_document, step_document, version_document},
    run_events,
    state::{Run, RunVariables, State, StepState, VariableSnapshot, Version, Workspace},
};

/// Announces an upload.
pub(super) fn new_version(tfc: &TestTfc, asked: &Asked<'_>, workspace: &str) -> Answer {
    let attribute = |name: &str, default: bool| {
        let value = asked.body.pointer(&format!("/data/attributes/{name}"));
        value.and_then(Value::as_bool).unwrap_or(default)
    };
    tfc.change(|state| {
        let id = state.id("cv");
        let version = Version {
            workspace: workspace.to_owned(),
            speculative: attribute("speculative", false),
            provisional: attribute("provisional", false),
            auto_queue_runs: attribute("auto-queue-runs", true),
            created_at: clock::now(),
            ..Version::default()
        };
        state.versions.insert(id.clone(), version);
        let mut document = version_document(state, &id);
        if let Some(attributes) = document.pointer_mut("/attributes").and_then(Value::as_object_mut)
        {
            let url = format!("{}/_archivist/cv/{id}", asked.base);
            attributes.insert("upload-url".to_owned(), url.into());
        }
        answer::document(201, &json!({ "data": document }))
    })
}

/// Lists the configuration versions of a workspace, the newest first.
pub(super) fn versions(state: &State, asked: &Asked<'_>, workspace: &str) -> Answer {
    let found = state.versions.iter().rev().filter(|(_, found)| found.workspace == workspace);
    let found: Vec<Value> = found.map(|(id, _)| version_document(state, id)).collect();
    answer::page(&found, asked.query)
}

/// Answers for runs, plans, applies and configuration versions.
pub(super) fn run(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    match (asked.method.as_str(), rest) {
        ("GET", ["configuration-versions", id, rest @ ..]) => version(tfc, asked, id, rest),
        ("POST", ["configuration-versions", id, "actions", "archive"]) => archive_version(tfc, id),
        ("POST", ["runs"]) => create(tfc, asked),
        ("GET", ["runs", id]) => {
            let state = tfc.state();
            if !state.runs.contains_key(*id) {
                return answer::not_found();
            }
            let included = included(&state, asked, id);
            answer::document(200, &json!({"data": run_document(&state, id), "included": included}))
        }
        ("POST", ["runs", id, "actions", action]) => act(tfc, asked, id, action),
        ("GET", ["runs", id, step @ ("plan" | "apply"), rest @ ..]) => {
            step_of(tfc, asked, step, id, rest)
        }
        ("GET", ["plans", id, rest @ ..]) => {
            step_of(tfc, asked, "plan", &id.replacen("plan", "run", 1), rest)
        }
        ("GET", ["applies", id, rest @ ..]) => {
            step_of(tfc, asked, "apply", &id.replacen("apply", "run", 1), rest)
        }
        _ => answer::not_found(),
    }
}

fn version(tfc: &TestTfc, asked: &Asked<'_>, id: &str, rest: &[&str]) -> Answer {
    let state = tfc.state();
    let Some(found) = state.versions.get(id) else { return answer::not_found() };
    match rest {
        [] => answer::document(200, &json!({"data": version_document(&state, id)})),
        ["download"] if found.content.is_some() => {
            answer::redirect(&format!("{}/_archivist/cv/{id}", asked.base))
        }
        _ => answer::not_found(),
    }
}

/// Answers for a run's plan or apply, its log and its JSON.
fn step_of(tfc: &TestTfc, asked: &Asked<'_>, step: &str, id: &str, rest: &[&str]) -> Answer {
    let state = tfc.state();
    let Some(run) = state.runs.get(id) else { return answer::not_found() };
    let (json, kind) = match rest {
        [] => {
            let document = step_document(run, id, step, &asked.base);
            return answer::document(200, &json!({ "data": document }));
        }
        ["log"] => {
            return answer::redirect(&format!("{}/_archivist/log/{step}/{id}", asked.base));
        }
        ["json-output"] if step == "plan" => (run.json.is_some(), "json"),
        ["json-output-redacted"] if step == "plan" => (run.redacted.is_some(), "redacted"),
        _ => return answer::not_found(),
    };
    if json {
        // As the platform, which keeps plans at the host of archives.
        answer::redirect(&format!("{}/_archivist/{kind}/{id}", asked.base))
    } else {
        answer::empty(204)
    }
}

fn archive_version(tfc: &TestTfc, id: &str) -> Answer {
    tfc.change(|state| {
        let current = state
            .workspaces
            .values()
            .any(|workspace| workspace.current_version.as_deref() == Some(id));
        match state.versions.get_mut(id) {
            None => answer::not_found(),
            Some(_) if current => answer::conflict("is the current configuration version"),
            Some(version) => {
                version.archived = true;
                version.content = None;
                answer::empty(202)
            }
        }
    })
}

fn create(tfc: &TestTfc, asked: &Asked<'_>) -> Answer {
    let attributes = asked.body.pointer("/data/attributes").cloned().unwrap_or_default();
    let Some(workspace) = related(&asked.body, "workspace") else {
        return answer::error(422, "invalid", "a run needs a workspace");
    };
    let version = related(&asked.body, "configuration-version");
    match new_run(tfc, workspace, version, &attributes) {
        Ok(id) => {
            let created = json!({"data": run_document(&tfc.state(), &id)});
            life::begin(tfc, id);
            answer::document(201, &created)
        }
        Err(refused) => *refused,
    }
}

/// Queues the run of an upload that asked for one.
pub(super) fn queue_for_upload(
    tfc: &TestTfc,
    workspace: &str,
    version: &str,
) -> Result<(), Box<Answer>> {
    let attributes = json!({"message": "Queued by an upload"});
    let id = new_run(tfc, workspace, Some(version), &attributes)?;
    life::begin(tfc, id);
    Ok(())
}

/// Adds a run, which waits to be begun.
fn new_run(
    tfc: &TestTfc,
    workspace: &str,
    version: Option<&str>,
    attributes: &Value,
) -> Result<String, Box<Answer>> {
    tfc.change(|state| {
        let found = state.workspaces.get(workspace).ok_or_else(|| Box::new(answer::not_found()))?;
        let refused = |detail: &str| Box::new(answer::error(422, "invalid attribute", detail));
        if found.attributes.get("execution-mode") == Some(&json!("local")) {
            return Err(refused("the workspace's runs are executed locally"));
        }
        let version = version.map(str::to_owned).or_else(|| found.current_version.clone());
        let usable = version
            .filter(|id| state.versions.get(id).is_some_and(|version| version.content.is_some()));
        let version = usable.ok_or_else(|| refused("no configuration version is uploaded"))?;
        let listed = attributes.get("variables").and_then(Value::as_array).into_iter().flatten();
        let given = listed.filter_map(|variable| {
            let text = |name: &str| variable.get(name)?.as_str().map(str::to_owned);
            Some((text("key")?, text("value")?))
        });
        let mut variables: Vec<_> = given.collect();
        match state.run_variables {
            RunVariables::Refused if !variables.is_empty() => {
                return Err(refused("Variables is unknown"));
            }
            RunVariables::Ignored => variables.clear(),
            RunVariables::Taken | RunVariables::Refused => {}
        }
        let speculative = state.versions.get(&version).is_some_and(|version| version.speculative);
        let mut run = run_of(attributes, found, workspace, speculative);
        (run.version, run.variables) = (version, variables);
        run.set_status("pending");
        let id = state.id("run");
        run.number = state.number();
        if let Some(found) = state.workspaces.get_mut(workspace) {
            run.result = found.results.pop_front();
        }
        state.runs.insert(id.clone(), run);
        Ok(id)
    })
}

fn run_of(attributes: &Value, found: &Workspace, workspace: &str, speculative: bool) -> Run {
    let flag = |name: &str| attributes.get(name).and_then(Value::as_bool);
    let text = |name: &str| attributes.get(name).and_then(Value::as_str);
    let list = |name: &str| {
        let all = attributes.get(name).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let by_itself = found.attributes.get("auto-apply").and_then(Value::as_bool);
    let save_plan = flag("save-plan").unwrap_or_default();
    let message = text("message").unwrap_or("Queued manually via the Terraform Enterprise API");
    let pending = || StepState { status: "pending", ..StepState::default() };
    let mut run = Run {
        workspace: workspace.to_owned(),
        message: message.to_owned(),
        // A saved plan is never applied by itself.
        auto_apply: flag("auto-apply").or(by_itself).unwrap_or_default() && !save_plan,
        plan_only: flag("plan-only").unwrap_or(speculative),
        save_plan,
        refresh: flag("refresh").unwrap_or(true),
        refresh_only: flag("refresh-only").unwrap_or_default(),
        terraform_version: text("terraform-version").map(str::to_owned),
        is_destroy: flag("is-destroy").unwrap_or_default(),
        allow_empty_apply: flag("allow-empty-apply").unwrap_or_default(),
        target_addrs: list("target-addrs"),
        replace_addrs: list("replace-addrs"),
        snapshot: snapshot(found),
        created_at: clock::now(),
        plan: pending(),
        apply: pending(),
        ..Run::default()
    };
    run.note("created", None);
    run
}

/// Returns the values of this moment: what is changed later counts for later runs.
fn snapshot(found: &Workspace) -> Vec<VariableSnapshot> {
    let values = found.variables.values().map(|variable| {
        let text = |name: &str| variable.get(name).and_then(Value::as_str).unwrap_or_default();
        VariableSnapshot {
            key: text("key").to_owned(),
            value: text("value").to_owned(),
            hcl: variable.get("hcl").and_then(Value::as_bool).unwrap_or_default(),
            env: text("category") == "env",
        }
    });
    values.collect()
}

fn act(tfc: &TestTfc, asked: &Asked<'_>, id: &str, action: &str) -> Answer {
    if !tfc.state().runs.contains_key(id) {
        return answer::not_found();
    }
    let done = match action {
        "apply" => tfc.confirm(id),
        "discard" => tfc.discard(id),
        "cancel" => tfc.cancel(id),
        "force-cancel" => tfc.change(|state| match state.runs.get_mut(id) {
            Some(run) if run.is_force_cancelable() => {
                run.set_status("force_canceled");
                for step in [&mut run.plan, &mut run.apply] {
                    if step.status == "running" {
                        step.end("canceled", "");
                    }
                }
                true
            }
            _ => false,
        }),
        "force-execute" => force_execute(tfc, id),
        _ => return answer::not_found(),
    };
    if !done {
        return answer::conflict("the run's state does not allow it");
    }
    let comment = asked.body.get("comment").and_then(Value::as_str);
    if let Some(comment) = comment.filter(|comment| !comment.is_empty()) {
        tfc.change(|state| run_events::comment(state, id, comment));
    }
    answer::empty(202)
}

/// Ends the runs that a pending run waits for, where they wait themselves.
fn force_execute(tfc: &TestTfc, id: &str) -> bool {
    tfc.change(|state| {
        let Some(run) = state.runs.get(id).filter(|run| run.status == "pending") else {
            return false;
        };
        let (workspace, number) = (run.workspace.clone(), run.number);
        let ahead =
            |other: &Run| other.workspace == workspace && other.occupies() && other.number < number;
        let mut waiting = state.runs.values().filter(|other| ahead(other));
        if !waiting.all(Run::is_discardable) {
            return false;
        }
        for other in state.runs.values_mut().filter(|other| ahead(other)) {
            other.set_status("discarded");
        }
        true
    })
}

/// Notes that a run is asked to end, and from when it may be ended by force.
pub(super) fn cancel(state: &mut State, id: &str, cool_off: std::time::Duration) -> bool {
    match state.runs.get_mut(id) {
        Some(run) if run.is_cancelable() => {
            // Only noted: the run ends itself at the next step, as the platform's do.
            run.cancel_asked = true;
            let since = (Instant::now() + cool_off, clock::after(cool_off));
            run.force_cancel.get_or_insert(since);
            true
        }
        _ => false,
    }
}

/// Lists runs, the newest first, without those that only plan unless they are asked for.
pub(super) fn list(state: &State, asked: &Asked<'_>, workspace: Option<&str>) -> Answer {
    let group = query::parameter(asked.query, "filter[status_group]");
    let statuses = query::listed(asked.query, "filter[status]");
    let operations = query::listed(asked.query, "filter[operation]");
    let text = query::parameter(asked.query, "search[basic]").unwrap_or_default();
    let runs = state.runs.iter().rev().filter(|(id, run)| {
        let grouped = match group.as_deref() {
            Some("non_final") => !run.is_final(),
            Some("final") => run.is_final(),
            Some("discardable") => run.is_discardable(),
            _ => true,
        };
        let shown = if operations.is_empty() {
            !run.plan_only
        } else {
            operations.iter().any(|wanted| wanted == operation(run))
        };
        grouped
            && shown
            && workspace.is_none_or(|id| run.workspace == id)
            && (statuses.is_empty() || statuses.contains(&run.status))
            && (id.contains(&text) || run.message.contains(&text))
    });
    let runs: Vec<Value> = runs.map(|(id, _)| run_document(state, id)).collect();
    answer::page(&runs, asked.query)
}

fn operation(run: &Run) -> &'static str {
    match run {
        Run { save_plan: true, .. } => "save_plan",
        Run { plan_only: true, .. } => "plan_only",
        Run { refresh_only: true, .. } => "refresh_only",
        Run { is_destroy: true, .. } => "destroy",
        Run { allow_empty_apply: true, .. } => "empty_apply",
        Run { .. } => "plan_and_apply",
    }
}

/// Lists the runs of the organization that wait or are under way, the oldest first.
pub(super) fn queue(state: &State, asked: &Asked<'_>) -> Answer {
    let runs = state.runs.iter().filter(|(_, run)| {
        matches!(
            run.status.as_str(),
            "pending" | "plan_queued" | "planning" | "apply_queued" | "applying"
        )
    });
    let runs: Vec<Value> = runs.map(|(id, _)| run_document(state, id)).collect();
    answer::page(&runs, asked.query)
}
