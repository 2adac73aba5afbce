//! Uploads, logs and runs of the double.

use http::Method;
use serde_json::{Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    check_routes, life,
    route::{Asked, related, workspace_document},
    state::{Hold, Run, RunVariables, State, StepState, VariableSnapshot, Version},
};

/// Announces an upload.
pub(super) fn new_version(tfc: &TestTfc, asked: &Asked<'_>, workspace: &str) -> Answer {
    let attribute = |name: &str, default: bool| {
        let value = asked.body.pointer(&format!("/data/attributes/{name}"));
        value.and_then(Value::as_bool).unwrap_or(default)
    };
    if attribute("auto-queue-runs", true) {
        return answer::error(422, "invalid", "this double queues no runs for uploads");
    }
    tfc.change(|state| {
        let id = state.id("cv");
        let version = Version {
            workspace: workspace.to_owned(),
            speculative: attribute("speculative", false),
            ..Version::default()
        };
        state.versions.insert(id.clone(), version);
        let mut document = version_document(state, &id);
        if let Some(attributes) = document.pointer_mut("/attributes").and_then(Value::as_object_mut)
        {
            attributes.insert(
                "upload-url".to_owned(),
                format!("{}/_archivist/cv/{id}", asked.base).into(),
            );
        }
        answer::document(201, &json!({"data": document}))
    })
}

fn version_document(state: &State, id: &str) -> Value {
    let Some(version) = state.versions.get(id) else { return Value::Null };
    let status = match version {
        Version { archived: true, .. } => "archived",
        Version { content: Some(_), .. } => "uploaded",
        Version { .. } => "pending",
    };
    json!({"id": id, "type": "configuration-versions", "attributes": {
        "status": status, "source": "tfe-api", "speculative": version.speculative,
        "auto-queue-runs": false, "error-message": null,
    }})
}

/// Answers for uploads and logs.
pub(super) fn archive(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    let number = |name: &str| {
        let mut pairs = asked.query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(key, _)| *key == name);
        found.and_then(|(_, value)| value.parse::<usize>().ok())
    };
    match (asked.method, rest) {
        (&Method::PUT, ["cv", id]) => tfc.change(|state| {
            let Some(version) = state.versions.get_mut(*id) else { return answer::not_found() };
            version.content = Some(asked.raw.clone());
            let (workspace, speculative) = (version.workspace.clone(), version.speculative);
            // A speculative upload never becomes the current one.
            if !speculative && let Some(workspace) = state.workspaces.get_mut(&workspace) {
                workspace.current_version = Some((*id).to_owned());
            }
            answer::empty(200)
        }),
        (&Method::GET, ["log", step @ ("plan" | "apply"), id]) => {
            let state = tfc.state();
            let Some(run) = state.runs.get(*id) else { return answer::not_found() };
            let step = if *step == "plan" { &run.plan } else { &run.apply };
            let (offset, limit) = (number("offset").unwrap_or(0), number("limit").unwrap_or(65536));
            let given = step.readable(state.holds.contains(&Hold::LogEnds));
            let piece = given.iter().skip(offset).take(limit).copied();
            answer::bytes(piece.collect())
        }
        (&Method::GET, ["json", id]) => match tfc.state().runs.get(*id) {
            Some(Run { json: Some(json), .. }) => answer::document(200, json),
            _ => answer::not_found(),
        },
        _ => answer::not_found(),
    }
}

/// Answers for runs, plans, applies and configuration versions.
pub(super) fn run(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    match (asked.method.as_str(), rest) {
        ("GET", ["configuration-versions", id]) => {
            let state = tfc.state();
            if !state.versions.contains_key(*id) {
                return answer::not_found();
            }
            answer::document(200, &json!({"data": version_document(&state, id)}))
        }
        ("POST", ["configuration-versions", id, "actions", "archive"]) => archive_version(tfc, id),
        ("POST", ["runs"]) => create(tfc, asked),
        ("GET", ["runs", id]) => {
            let state = tfc.state();
            let Some(run) = state.runs.get(*id) else { return answer::not_found() };
            let included = json!([
                step_document(run, id, "plan", &asked.base),
                step_document(run, id, "apply", &asked.base),
                workspace_document(&state, &run.workspace),
            ]);
            answer::document(200, &json!({"data": document(&state, id), "included": included}))
        }
        ("POST", ["runs", id, "actions", action]) => act(tfc, id, action),
        ("GET", ["plans", id, "json-output"]) => {
            let id = id.replacen("plan", "run", 1);
            match tfc.state().runs.get(&id).map(|run| run.json.is_some()) {
                // As the platform, which keeps plans at the host of archives.
                Some(true) => answer::redirect(&format!("{}/_archivist/json/{id}", asked.base)),
                Some(false) => answer::empty(204),
                None => answer::not_found(),
            }
        }
        _ => answer::not_found(),
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
    let flag = |name: &str| attributes.get(name).and_then(Value::as_bool);
    let Some(workspace) = related(&asked.body, "workspace") else {
        return answer::error(422, "invalid", "a run needs a workspace");
    };
    let created = tfc.change(|state| {
        let found = state.workspaces.get(workspace).ok_or_else(|| Box::new(answer::not_found()))?;
        let version = related(&asked.body, "configuration-version")
            .map(str::to_owned)
            .or_else(|| found.current_version.clone());
        let usable = version
            .filter(|id| state.versions.get(id).is_some_and(|version| version.content.is_some()));
        let Some(version) = usable else {
            let refused = answer::error(422, "invalid", "no configuration version is uploaded");
            return Err(Box::new(refused));
        };
        let by_itself = found.attributes.get("auto-apply").and_then(Value::as_bool);
        // The values of this moment: what is changed later counts for later runs.
        let snapshot = found.variables.values().map(|variable| {
            let text = |name: &str| variable.get(name).and_then(Value::as_str).unwrap_or_default();
            VariableSnapshot {
                key: text("key").to_owned(),
                value: text("value").to_owned(),
                hcl: variable.get("hcl").and_then(Value::as_bool).unwrap_or_default(),
                env: text("category") == "env",
            }
        });
        let variables = attributes.get("variables").and_then(Value::as_array).into_iter().flatten();
        let variables = variables.filter_map(|variable| {
            let text = |name: &str| variable.get(name)?.as_str().map(str::to_owned);
            Some((text("key")?, text("value")?))
        });
        let mut variables: Vec<_> = variables.collect();
        match state.run_variables {
            RunVariables::Refused if !variables.is_empty() => {
                let refused = answer::error(422, "invalid attribute", "Variables is unknown");
                return Err(Box::new(refused));
            }
            RunVariables::Ignored => variables.clear(),
            RunVariables::Taken | RunVariables::Refused => {}
        }
        let mut run = Run {
            workspace: workspace.to_owned(),
            version: version.clone(),
            status: "pending".to_owned(),
            message: attributes
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or("Queued manually via the Terraform Enterprise API")
                .to_owned(),
            auto_apply: flag("auto-apply").or(by_itself).unwrap_or_default(),
            plan_only: flag("plan-only").unwrap_or_else(|| {
                state.versions.get(&version).is_some_and(|version| version.speculative)
            }),
            save_plan: flag("save-plan").unwrap_or_default(),
            refresh: flag("refresh").unwrap_or(true),
            refresh_only: flag("refresh-only").unwrap_or_default(),
            terraform_version: attributes
                .get("terraform-version")
                .and_then(Value::as_str)
                .map(str::to_owned),
            is_destroy: flag("is-destroy").unwrap_or_default(),
            variables,
            snapshot: snapshot.collect(),
            plan: StepState { status: "pending", ..StepState::default() },
            apply: StepState { status: "pending", ..StepState::default() },
            ..Run::default()
        };
        let id = state.id("run");
        run.number = state.number();
        state.runs.insert(id.clone(), run);
        Ok((id.clone(), answer::document(201, &json!({"data": document(state, &id)}))))
    });
    match created {
        Ok((id, answer)) => {
            life::begin(tfc, id);
            answer
        }
        Err(refused) => *refused,
    }
}

fn act(tfc: &TestTfc, id: &str, action: &str) -> Answer {
    if !tfc.state().runs.contains_key(id) {
        return answer::not_found();
    }
    let done = match action {
        "apply" => tfc.confirm(id),
        "discard" => tfc.discard(id),
        "cancel" => tfc.cancel(id),
        "force-cancel" => tfc.change(|state| match state.runs.get_mut(id) {
            Some(run) if run.cancel_asked && !run.is_final() => {
                "force_canceled".clone_into(&mut run.status);
                true
            }
            _ => false,
        }),
        _ => return answer::not_found(),
    };
    if done { answer::empty(202) } else { answer::conflict("the run's state does not allow it") }
}

/// Lists runs, the newest first, without those that only plan.
pub(super) fn list(state: &State, asked: &Asked<'_>, workspace: Option<&str>) -> Answer {
    let group = |run: &Run| {
        if asked.query.contains("=non_final") {
            !run.is_final()
        } else if asked.query.contains("=final") {
            run.is_final()
        } else if asked.query.contains("=discardable") {
            run.is_discardable()
        } else {
            true
        }
    };
    let runs = state.runs.iter().rev().filter(|(_, run)| {
        workspace.is_none_or(|id| run.workspace == id) && !run.plan_only && group(run)
    });
    let runs: Vec<Value> = runs.map(|(id, _)| document(state, id)).collect();
    answer::page(&runs, asked.query)
}

fn document(state: &State, id: &str) -> Value {
    let Some(run) = state.runs.get(id) else { return Value::Null };
    let variables = run.variables.iter().map(|(key, value)| json!({"key": key, "value": value}));
    let stopped = run.cancel_asked.then_some("2024-05-24T07:39:04+00:00");
    let mut document = json!({"id": id, "type": "runs", "attributes": {
        "status": run.status, "source": "tfe-api", "message": run.message,
        "auto-apply": run.auto_apply, "plan-only": run.plan_only, "has-changes": run.has_changes,
        "is-destroy": run.is_destroy, "refresh-only": run.refresh_only, "refresh": run.refresh,
        "save-plan": run.save_plan, "terraform-version": run.terraform_version,
        "force-cancel-available-at": stopped,
        "actions": {
            "is-cancelable": run.is_cancelable(), "is-confirmable": run.is_confirmable(),
            "is-discardable": run.is_discardable(), "is-force-cancelable": run.cancel_asked,
        },
        "variables": variables.collect::<Vec<_>>(),
    }, "relationships": {
        "workspace": {"data": {"id": run.workspace, "type": "workspaces"}},
        "configuration-version": {"data": {"id": run.version, "type": "configuration-versions"}},
        "plan": {"data": {"id": id.replacen("run", "plan", 1), "type": "plans"}},
        "apply": {"data": {"id": id.replacen("run", "apply", 1), "type": "applies"}},
    }});
    if let Some(related) = document.get_mut("relationships").and_then(Value::as_object_mut) {
        let found = check_routes::relationships(run, id);
        related.extend(found.map(|(name, value)| (name.to_owned(), value)));
    }
    document
}

fn step_document(run: &Run, id: &str, name: &str, base: &str) -> Value {
    let (step, kind) = if name == "plan" { (&run.plan, "plans") } else { (&run.apply, "applies") };
    let count = |index: usize| step.counts.and_then(|counts| counts.get(index).copied());
    json!({"id": id.replacen("run", name, 1), "type": kind, "attributes": {
        "status": step.status, "has-changes": run.has_changes,
        "resource-additions": count(0), "resource-changes": count(1),
        "resource-destructions": count(2),
        "log-read-url": format!("{base}/_archivist/log/{name}/{id}"),
    }})
}
