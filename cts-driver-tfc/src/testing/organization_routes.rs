//! The organization: what it is entitled to, its projects, agent pools, queue and workspaces.

use serde_json::{Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    query,
    route::Asked,
    run_routes,
    state::{DEFAULT_PROJECT, State},
    workspace_list, workspace_routes,
};

/// Answers for what is below an organization.
pub(super) fn organization(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    match (asked.method.as_str(), rest) {
        ("GET", []) => answer::document(200, &json!({"data": document(tfc)})),
        ("GET", ["entitlement-set"]) => answer::document(200, &json!({"data": entitlements()})),
        ("GET", ["capacity"]) => capacity(&tfc.state()),
        ("GET", ["runs", "queue"]) => run_routes::queue(&tfc.state(), asked),
        ("GET", ["runs"]) => run_routes::list(&tfc.state(), asked, None),
        ("GET", ["workspaces"]) => workspace_list::list(&tfc.state(), asked),
        ("POST", ["workspaces"]) => workspace_routes::create(tfc, asked),
        (_, ["workspaces", name, rest @ ..]) => {
            // The same as by id, which Terraform's own commands do by name.
            let found = tfc.state().workspace_named(name).map(|(id, _)| id.clone());
            match found {
                Some(id) => workspace_routes::workspace(tfc, asked, &id, rest),
                None => answer::not_found(),
            }
        }
        ("GET", ["agent-pools"]) => pools(&tfc.state(), asked),
        ("POST", ["agent-pools"]) => new_pool(tfc, asked),
        ("GET", ["projects"]) => projects(&tfc.state(), asked),
        ("POST", ["projects"]) => new_project(tfc, asked),
        _ => answer::unserved(&format!("{} of an organization's {}", asked.method, rest.join("/"))),
    }
}

fn document(tfc: &TestTfc) -> Value {
    json!({"id": TestTfc::ORGANIZATION, "type": "organizations", "attributes": {
        "name": TestTfc::ORGANIZATION, "created-at": tfc.state().created_at,
        "email": "ops@example.com", "external-id": "org-0000000000000000",
        "collaborator-auth-policy": "password", "plan-expired": false,
        "default-execution-mode": "remote", "cost-estimation-enabled": false,
        "assessments-enforced": false, "allow-force-delete-workspaces": true,
        "saml-enabled": false, "two-factor-conformant": false,
        "permissions": {
            "can-create-team": true, "can-create-workspace": true, "can-destroy": false,
            "can-create-workspace-migration": true, "can-manage-run-tasks": true,
            "can-traverse": true, "can-update": true, "can-update-api-token": true,
            "can-update-oauth": true, "can-update-sentinel": true,
        },
    }, "relationships": {
        "entitlement-set": {"links": {
            "related": format!("/api/v2/organizations/{}/entitlement-set", TestTfc::ORGANIZATION),
        }},
        "default-project": {"data": {"id": DEFAULT_PROJECT, "type": "projects"}},
    }})
}

fn entitlements() -> Value {
    json!({"id": "org-0000000000000000", "type": "entitlement-sets", "attributes": {
        "agents": true, "audit-logging": false, "cost-estimation": true,
        "global-run-tasks": false, "operations": true, "private-module-registry": false,
        "run-tasks": true, "sentinel": true, "sso": false, "state-storage": true, "teams": true,
        "user-limit": null, "vcs-integrations": false,
    }})
}

fn capacity(state: &State) -> Answer {
    let count = |pending: bool| {
        let active = state.runs.values().filter(|run| !run.is_final());
        active.filter(|run| (run.status == "pending") == pending).count()
    };
    let found = json!({"id": TestTfc::ORGANIZATION, "type": "organization-capacity",
        "attributes": {"pending": count(true), "running": count(false)}});
    answer::document(200, &json!({"data": found}))
}

fn pool_document(name: &str, id: &str, created_at: &str) -> Value {
    json!({"id": id, "type": "agent-pools", "attributes": {
        "name": name, "agent-count": 1, "organization-scoped": true, "created-at": created_at,
    }, "relationships": {
        "organization": {"data": {"id": TestTfc::ORGANIZATION, "type": "organizations"}},
        "workspaces": {"data": []}, "allowed-workspaces": {"data": []},
    }})
}

fn pools(state: &State, asked: &Asked<'_>) -> Answer {
    let wanted = query::parameter(asked.query, "q").unwrap_or_default();
    let pools = state.pools.iter().filter(|(name, _)| name.contains(&wanted));
    let pools = pools.map(|(name, id)| pool_document(name, id, &state.created_at));
    answer::page(&pools.collect::<Vec<_>>(), asked.query)
}

fn attribute<'a>(asked: &'a Asked<'_>, name: &str) -> Option<&'a str> {
    asked.body.pointer(&format!("/data/attributes/{name}"))?.as_str()
}

fn new_pool(tfc: &TestTfc, asked: &Asked<'_>) -> Answer {
    let Some(name) = attribute(asked, "name").filter(|name| !name.is_empty()) else {
        return answer::error(422, "invalid attribute", "Name can't be blank");
    };
    if tfc.state().pools.contains_key(name) {
        return answer::error(422, "invalid attribute", "Name has already been taken");
    }
    let id = tfc.add_pool(name);
    let created_at = tfc.state().created_at.clone();
    answer::document(201, &json!({"data": pool_document(name, &id, &created_at)}))
}

/// Answers for one agent pool.
pub(super) fn pool(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    tfc.change(|state| {
        let found = state.pools.iter().find(|(_, found)| *found == id);
        let Some(name) = found.map(|(name, _)| name.clone()) else { return answer::not_found() };
        match asked.method.as_str() {
            "GET" => {}
            "PATCH" => {
                if let Some(new) = attribute(asked, "name") {
                    state.pools.remove(&name);
                    state.pools.insert(new.to_owned(), id.to_owned());
                    let document = pool_document(new, id, &state.created_at);
                    return answer::document(200, &json!({ "data": document }));
                }
            }
            "DELETE" => {
                if state.workspaces.values().any(|found| found.pool.as_deref() == Some(id)) {
                    return answer::error(422, "invalid", "the agent pool has workspaces");
                }
                state.pools.remove(&name);
                return answer::empty(204);
            }
            _ => return answer::not_found(),
        }
        answer::document(200, &json!({"data": pool_document(&name, id, &state.created_at)}))
    })
}

fn project_document(state: &State, id: &str, name: &str) -> Value {
    let workspaces = state.workspaces.values();
    let count = workspaces.filter(|found| found.project.as_deref() == Some(id)).count();
    json!({"id": id, "type": "projects", "attributes": {
        "name": name, "description": "", "is-unified": false, "workspace-count": count,
        "created-at": state.created_at,
        "permissions": {"can-update": true, "can-destroy": true, "can-create-workspace": true},
    }, "relationships": {
        "organization": {"data": {"id": TestTfc::ORGANIZATION, "type": "organizations"}},
    }})
}

fn projects(state: &State, asked: &Asked<'_>) -> Answer {
    let names = query::listed(asked.query, "filter[names]");
    let part = query::parameter(asked.query, "q").unwrap_or_default();
    let default = std::iter::once((DEFAULT_PROJECT, "Default Project"));
    let made = state.projects.iter().map(|(id, name)| (id.as_str(), name.as_str()));
    let found = default.chain(made).filter(|(_, name)| {
        name.contains(&part) && (names.is_empty() || names.iter().any(|wanted| wanted == name))
    });
    let found: Vec<Value> = found.map(|(id, name)| project_document(state, id, name)).collect();
    answer::page(&found, asked.query)
}

fn new_project(tfc: &TestTfc, asked: &Asked<'_>) -> Answer {
    let Some(name) = attribute(asked, "name").filter(|name| !name.is_empty()) else {
        return answer::error(422, "invalid attribute", "Name can't be blank");
    };
    tfc.change(|state| {
        if name == "Default Project" || state.projects.values().any(|known| known == name) {
            return answer::error(422, "invalid attribute", "Name has already been taken");
        }
        let id = state.id("prj");
        state.projects.insert(id.clone(), name.to_owned());
        answer::document(201, &json!({"data": project_document(state, &id, name)}))
    })
}

/// Answers for one project.
pub(super) fn project(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    let state = tfc.state();
    let name = state.projects.get(id).map(String::as_str);
    match (asked.method.as_str(), name.or((id == DEFAULT_PROJECT).then_some("Default Project"))) {
        ("GET", Some(name)) => {
            answer::document(200, &json!({"data": project_document(&state, id, name)}))
        }
        _ => answer::not_found(),
    }
}

/// Answers who the token belongs to.
pub(super) fn account() -> Answer {
    let user = json!({"id": USER, "type": "users", "attributes": {
        "username": "double", "email": "ops@example.com", "is-service-account": true,
        "v2-only": true, "permissions": {"can-create-organizations": false},
        "two-factor": {"enabled": false, "verified": false},
    }});
    answer::document(200, &json!({ "data": user }))
}

/// Id of the user that the token belongs to.
pub(super) const USER: &str = "user-0000000000000000";
