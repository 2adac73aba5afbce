//! Workspaces, their variables and tags, as the double keeps them.

use serde_json::{Map, Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    route::{Asked, workspace_document},
    run_routes,
    state::{State, Workspace},
};

/// Largest value of a variable, in bytes.
const LARGEST: usize = 256 * 1024;

/// Answers for what is below an organization.
pub(super) fn organization(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    match (asked.method.as_str(), rest) {
        ("GET", ["workspaces", name]) => {
            let state = tfc.state();
            match state.workspace_named(name) {
                Some((id, _)) => shown(&state, 200, id),
                None => answer::not_found(),
            }
        }
        ("POST", ["workspaces"]) => create(tfc, asked),
        ("GET", ["agent-pools"]) => {
            let state = tfc.state();
            let pools = state.pools.iter().map(|(name, id)| {
                json!({"id": id, "type": "agent-pools", "attributes": {"name": name, "agent-count": 1}})
            });
            answer::page(&pools.collect::<Vec<_>>(), asked.query)
        }
        ("GET", ["runs"]) => run_routes::list(&tfc.state(), asked, None),
        _ => answer::not_found(),
    }
}

fn shown(state: &State, status: u16, id: &str) -> Answer {
    answer::document(status, &json!({"data": workspace_document(state, id)}))
}

fn attributes(asked: &Asked<'_>) -> Map<String, Value> {
    let attributes = asked.body.pointer("/data/attributes").and_then(Value::as_object);
    attributes.cloned().unwrap_or_default()
}

fn create(tfc: &TestTfc, asked: &Asked<'_>) -> Answer {
    let mut attributes = attributes(asked);
    let Some(Value::String(name)) = attributes.remove("name") else {
        return answer::error(422, "invalid attribute", "Name can't be blank");
    };
    tfc.change(|state| {
        if state.workspace_named(&name).is_some() {
            return answer::error(422, "invalid attribute", "Name has already been taken");
        }
        let pool = attributes.remove("agent-pool-id");
        let mut workspace = Workspace { name, ..Workspace::default() };
        workspace.pool = pool.and_then(|pool| pool.as_str().map(str::to_owned));
        workspace.attributes = attributes;
        workspace.attributes.entry("auto-apply").or_insert(false.into());
        workspace.attributes.entry("execution-mode").or_insert("remote".into());
        workspace.attributes.insert("locked".to_owned(), false.into());
        let id = state.id("ws");
        state.workspaces.insert(id.clone(), workspace);
        shown(state, 201, &id)
    })
}

/// Answers for what is below a workspace that exists.
pub(super) fn workspace(tfc: &TestTfc, asked: &Asked<'_>, id: &str, rest: &[&str]) -> Answer {
    match (asked.method.as_str(), rest) {
        ("GET", []) => shown(&tfc.state(), 200, id),
        ("PATCH", []) => tfc.change(|state| {
            let mut changed = attributes(asked);
            let pool = changed.remove("agent-pool-id");
            if let Some(workspace) = state.workspaces.get_mut(id) {
                if let Some(pool) = pool {
                    workspace.pool = pool.as_str().map(str::to_owned);
                }
                workspace.attributes.extend(changed);
            }
            shown(state, 200, id)
        }),
        ("DELETE", []) => tfc.change(|state| {
            state.workspaces.remove(id);
            answer::empty(204)
        }),
        ("GET", ["current-state-version"]) => {
            let state = tfc.state();
            let has = state.workspaces.get(id).is_some_and(|found| {
                found.has_state || found.resources > 0 || !found.applied.is_empty()
            });
            let found = json!({"id": id.replacen("ws", "sv", 1), "type": "state-versions",
                "attributes": {"serial": 1, "status": "finalized", "resources-processed": true}});
            if has { answer::document(200, &json!({"data": found})) } else { answer::not_found() }
        }
        ("POST", ["actions", action]) => act(tfc, id, action),
        (_, ["relationships", "tags"]) => tags(tfc, asked, id),
        (_, ["tag-bindings" | "effective-tag-bindings"]) => bindings(tfc, asked, id),
        (_, ["vars", rest @ ..]) => variables(tfc, asked, id, rest),
        _ => answer::not_found(),
    }
}

fn act(tfc: &TestTfc, id: &str, action: &str) -> Answer {
    tfc.change(|state| {
        let busy = state.runs.values().any(|run| run.workspace == id && !run.is_final());
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        let locked = workspace.attributes.get("locked") == Some(&Value::Bool(true));
        match (action, locked) {
            ("lock", true) => return answer::conflict("is locked by User"),
            ("unlock" | "force-unlock", false) => return answer::conflict("is not locked"),
            ("lock" | "unlock" | "force-unlock", _) => {
                workspace.attributes.insert("locked".to_owned(), (action == "lock").into());
            }
            ("safe-delete", true) => return answer::conflict("the workspace is locked"),
            ("safe-delete", false) if workspace.resources > 0 => {
                return answer::conflict("the workspace manages resources");
            }
            ("safe-delete", false) if busy => {
                return answer::conflict("the workspace's state is being processed");
            }
            ("safe-delete", false) => {
                state.workspaces.remove(id);
                return answer::empty(204);
            }
            _ => return answer::not_found(),
        }
        shown(state, 200, id)
    })
}

fn tags(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    let named: Vec<String> = asked
        .body
        .get("data")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|tag| tag.pointer("/attributes/name")?.as_str().map(str::to_owned))
        .collect();
    tfc.change(|state| {
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        match asked.method.as_str() {
            "GET" => {
                let tags = workspace.tags.iter().enumerate().map(|(number, name)| {
                    json!({"id": format!("tag-{number}"), "type": "tags", "attributes": {"name": name}})
                });
                answer::page(&tags.collect::<Vec<_>>(), asked.query)
            }
            "POST" => {
                for name in named {
                    if !workspace.tags.contains(&name) {
                        workspace.tags.push(name);
                    }
                }
                answer::empty(204)
            }
            _ => {
                workspace.tags.retain(|tag| !named.contains(tag));
                answer::empty(204)
            }
        }
    })
}

fn bindings(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    tfc.change(|state| {
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        let given = asked.body.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut bindings = workspace.bindings.clone();
        for binding in given {
            let text = |name: &str| {
                let value = binding.pointer(&format!("/attributes/{name}"));
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            bindings.insert(text("key"), text("value"));
        }
        if bindings.len() > 10 {
            return answer::error(422, "invalid", "cannot exceed 10 bindings per resource");
        }
        workspace.bindings = bindings;
        let bindings = workspace.bindings.iter().map(|(key, value)| {
            json!({"id": format!("tb-{key}"), "type": "tag-bindings",
                "attributes": {"key": key, "value": value}})
        });
        answer::document(200, &json!({"data": bindings.collect::<Vec<_>>()}))
    })
}

fn variables(tfc: &TestTfc, asked: &Asked<'_>, id: &str, rest: &[&str]) -> Answer {
    let given = attributes(asked);
    tfc.change(|state| {
        let new_id = state.id("var");
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        let known = &mut workspace.variables;
        match (asked.method.as_str(), rest) {
            ("GET", []) => {
                let all = known.iter().map(|(id, variable)| variable_document(id, variable));
                answer::document(200, &json!({"data": all.collect::<Vec<_>>()}))
            }
            ("POST", []) => {
                let same = known.values().any(|variable| {
                    variable.get("key") == given.get("key")
                        && variable.get("category") == given.get("category")
                });
                if same {
                    return answer::error(422, "invalid attribute", "Key has already been taken");
                }
                if let Some(refused) = refused_variable(&given) {
                    return refused;
                }
                let mut variable = given;
                variable.entry("value").or_insert("".into());
                known.insert(new_id.clone(), variable.clone());
                answer::document(201, &json!({"data": variable_document(&new_id, &variable)}))
            }
            ("PATCH", [id]) => {
                let Some(variable) = known.get_mut(*id) else { return answer::not_found() };
                let mut changed = variable.clone();
                changed.extend(given);
                if let Some(refused) = refused_variable(&changed) {
                    return refused;
                }
                *variable = changed;
                answer::document(200, &json!({"data": variable_document(id, variable)}))
            }
            ("DELETE", [id]) => match known.remove(*id) {
                Some(_) => answer::empty(204),
                None => answer::not_found(),
            },
            _ => answer::not_found(),
        }
    })
}

fn refused_variable(variable: &Map<String, Value>) -> Option<Answer> {
    let length = |name: &str| variable.get(name).and_then(Value::as_str).map_or(0, str::len);
    let refuse = |detail: &str| Some(answer::error(422, "invalid attribute", detail));
    if length("key") == 0 || variable.get("category").is_none() {
        return refuse("Key and category can't be blank");
    }
    if length("value") > LARGEST {
        return refuse("Value is too long");
    }
    if length("description") > 512 {
        return refuse("Description is too long (maximum is 512 characters)");
    }
    None
}

fn variable_document(id: &str, variable: &Map<String, Value>) -> Value {
    let mut attributes = variable.clone();
    if attributes.get("sensitive") == Some(&Value::Bool(true)) {
        // Never given back, as the platform does with sensitive values.
        attributes.insert("value".to_owned(), Value::Null);
    }
    json!({"id": id, "type": "vars", "attributes": attributes})
}
