//! Documents of runs, their steps and their configurations, in the platform's form.

use serde_json::{Value, json};

use super::{
    check_routes,
    documents::workspace_document,
    organization_routes::USER,
    query,
    route::Asked,
    state::{Run, State, Version},
};

/// Returns the document of a run, or null for one that is not there.
pub(super) fn run_document(state: &State, id: &str) -> Value {
    let Some(run) = state.runs.get(id) else { return Value::Null };
    let variables = run.variables.iter().map(|(key, value)| json!({"key": key, "value": value}));
    let comments = run.comments.iter().map(|(id, _)| json!({"id": id, "type": "comments"}));
    let mut document = json!({"id": id, "type": "runs", "attributes": {
        "status": run.status, "source": "tfe-api", "message": run.message,
        "trigger-reason": "manual", "created-at": run.created_at,
        "auto-apply": run.auto_apply, "plan-only": run.plan_only, "has-changes": run.has_changes,
        "is-destroy": run.is_destroy, "refresh-only": run.refresh_only, "refresh": run.refresh,
        "save-plan": run.save_plan, "terraform-version": run.terraform_version,
        "allow-empty-apply": run.allow_empty_apply, "allow-config-generation": false,
        "target-addrs": run.target_addrs, "replace-addrs": run.replace_addrs,
        "position-in-queue": position(state, id), "status-timestamps": run.timestamps,
        "canceled-at": run.timestamps.get("canceled-at"),
        "force-cancel-available-at": run.force_cancel.as_ref().map(|(_, at)| at),
        "actions": {
            "is-cancelable": run.is_cancelable(), "is-confirmable": run.is_confirmable(),
            "is-discardable": run.is_discardable(),
            "is-force-cancelable": run.is_force_cancelable(),
        },
        "permissions": {
            "can-apply": true, "can-cancel": true, "can-comment": true, "can-discard": true,
            "can-force-execute": true, "can-force-cancel": true,
            "can-override-policy-check": true,
        },
        "variables": variables.collect::<Vec<_>>(),
    }, "relationships": {
        "workspace": {"data": {"id": run.workspace, "type": "workspaces"}},
        "configuration-version": {"data": {"id": run.version, "type": "configuration-versions"}},
        "plan": {"data": {"id": id.replacen("run", "plan", 1), "type": "plans"}},
        "apply": {"data": {"id": id.replacen("run", "apply", 1), "type": "applies"}},
        "created-by": {"data": {"id": USER, "type": "users"}},
        "comments": {"data": comments.collect::<Vec<_>>()},
        "run-events": {"links": {"related": format!("/api/v2/runs/{id}/run-events")}},
    }, "links": {"self": format!("/api/v2/runs/{id}")}});
    if let Some(related) = document.get_mut("relationships").and_then(Value::as_object_mut) {
        let found = check_routes::relationships(run, id);
        related.extend(found.map(|(name, value)| (name.to_owned(), value)));
    }
    document
}

/// Returns the number of runs of its workspace that a run waits for.
fn position(state: &State, id: &str) -> usize {
    let Some(run) = state.runs.get(id).filter(|run| run.status == "pending") else { return 0 };
    let ahead = state.runs.values().filter(|other| {
        other.workspace == run.workspace && other.occupies() && other.number < run.number
    });
    ahead.count()
}

/// Returns the documents that come with a run: plan, apply and workspace, and what is asked for.
pub(super) fn included(state: &State, asked: &Asked<'_>, id: &str) -> Vec<Value> {
    let Some(run) = state.runs.get(id) else { return Vec::new() };
    let mut found = vec![
        step_document(run, id, "plan", &asked.base),
        step_document(run, id, "apply", &asked.base),
        workspace_document(state, &run.workspace),
    ];
    let wanted = query::listed(asked.query, "include");
    let wants = |name: &str| wanted.iter().any(|wanted| wanted.replace('-', "_") == name);
    if wants("configuration_version") {
        found.push(version_document(state, &run.version));
    }
    if wants("task_stages") {
        found.extend(check_routes::stages(run, id));
    }
    found
}

/// Returns the document of a run's plan or apply.
pub(super) fn step_document(run: &Run, id: &str, name: &str, base: &str) -> Value {
    let (step, kind) = if name == "plan" { (&run.plan, "plans") } else { (&run.apply, "applies") };
    let count = |index: usize| step.counts.and_then(|counts| counts.get(index).copied());
    let own = id.replacen("run", name, 1);
    json!({"id": own, "type": kind, "attributes": {
        "status": step.status, "has-changes": run.has_changes,
        "execution-details": {"mode": "remote"}, "generated-configuration": false,
        "resource-additions": count(0), "resource-changes": count(1),
        "resource-destructions": count(2), "resource-imports": step.counts.map(|_| 0),
        "status-timestamps": step.timestamps,
        "log-read-url": format!("{base}/_archivist/log/{name}/{id}"),
    }, "links": {
        "self": format!("/api/v2/{kind}/{own}"),
        "json-output": format!("/api/v2/plans/{}/json-output", id.replacen("run", "plan", 1)),
    }})
}

/// Returns the document of a configuration version.
pub(super) fn version_document(state: &State, id: &str) -> Value {
    let Some(version) = state.versions.get(id) else { return Value::Null };
    let status = match version {
        Version { archived: true, .. } => "archived",
        Version { content: Some(_), .. } => "uploaded",
        Version { .. } => "pending",
    };
    let uploaded = version.uploaded_at.as_ref().map(|at| json!({ "finished-at": at }));
    json!({"id": id, "type": "configuration-versions", "attributes": {
        "status": status, "source": "tfe-api", "speculative": version.speculative,
        "provisional": version.provisional, "auto-queue-runs": version.auto_queue_runs,
        "error": null, "error-message": null, "changed-files": [],
        "created-at": version.created_at,
        "status-timestamps": uploaded.unwrap_or_else(|| json!({})),
    }, "relationships": {
        "ingress-attributes": {"data": null},
        "workspace": {"data": {"id": version.workspace, "type": "workspaces"}},
    }, "links": {
        "self": format!("/api/v2/configuration-versions/{id}"),
        "download": format!("/api/v2/configuration-versions/{id}/download"),
    }})
}
