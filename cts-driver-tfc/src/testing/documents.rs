//! Documents of workspaces, in the platform's form.

use serde_json::{Map, Value, json};

use super::{
    TestTfc,
    organization_routes::USER,
    state::{DEFAULT_PROJECT, State, Workspace},
};

/// Returns the document of a workspace, or null for one that is not there.
pub(super) fn workspace_document(state: &State, id: &str) -> Value {
    let Some(workspace) = state.workspaces.get(id) else { return Value::Null };
    let link = |id: Option<&String>, kind: &str| json!({"data": id.map(|id| json!({"id": id, "type": kind}))});
    let locked_by = workspace.is_locked().then(|| json!({"id": USER, "type": "users"}));
    json!({"id": id, "type": "workspaces", "attributes": attributes(workspace), "relationships": {
        "organization": {"data": {"id": TestTfc::ORGANIZATION, "type": "organizations"}},
        "project": {"data": {
            "id": workspace.project.as_deref().unwrap_or(DEFAULT_PROJECT), "type": "projects",
        }},
        "current-run": link(workspace.current_run.as_ref(), "runs"),
        "agent-pool": link(workspace.pool.as_ref(), "agent-pools"),
        "current-configuration-version":
            link(workspace.current_version.as_ref(), "configuration-versions"),
        "current-state-version": link(state.current_state_version(id), "state-versions"),
        "locked-by": {"data": locked_by},
    }, "links": {
        "self": format!("/api/v2/organizations/{}/workspaces/{}", TestTfc::ORGANIZATION, workspace.name),
        "self-html": format!("/app/{}/workspaces/{}", TestTfc::ORGANIZATION, workspace.name),
    }})
}

fn attributes(workspace: &Workspace) -> Map<String, Value> {
    let mut attributes = workspace.attributes.clone();
    let tags = workspace.tags.iter().chain(workspace.bindings.keys()).collect::<Vec<_>>();
    let local = attributes.get("execution-mode").and_then(Value::as_str) == Some("local");
    for (name, value) in [
        ("name", json!(workspace.name)),
        ("tag-names", json!(tags)),
        ("resource-count", workspace.resources.into()),
        ("created-at", json!(workspace.created_at)),
        ("updated-at", json!(workspace.updated_at)),
        ("operations", (!local).into()),
    ] {
        attributes.insert(name.to_owned(), value);
    }
    // Defaults of the platform, but for the JSON output of runs, which is off.
    let defaults = json!({
        "actions": {"is-destroyable": true}, "allow-destroy-plan": true,
        "assessments-enabled": false, "auto-apply-run-trigger": false, "auto-destroy-at": null,
        "description": null, "environment": "default", "file-triggers-enabled": true,
        "global-remote-state": false, "locked-reason": null, "queue-all-runs": false,
        "source": "tfe-api", "source-name": null, "source-url": null, "speculative-enabled": true,
        "structured-run-output-enabled": false, "terraform-version": "latest",
        "trigger-patterns": [], "trigger-prefixes": [], "vcs-repo": null,
        "working-directory": null,
        "permissions": {
            "can-create-state-versions": true, "can-destroy": true, "can-force-delete": true,
            "can-force-unlock": true, "can-lock": true, "can-manage-run-tasks": true,
            "can-manage-tags": true, "can-queue-apply": true, "can-queue-destroy": true,
            "can-queue-run": true, "can-read-settings": true, "can-read-state-outputs": true,
            "can-read-state-versions": true, "can-read-variable": true, "can-unlock": true,
            "can-update": true, "can-update-variable": true,
        },
    });
    for (name, value) in defaults.as_object().into_iter().flatten() {
        attributes.entry(name.clone()).or_insert_with(|| value.clone());
    }
    attributes
}
