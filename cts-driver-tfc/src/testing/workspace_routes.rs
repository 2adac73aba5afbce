//! Workspaces, their variables and tags, as the double keeps them.

use serde_json::{Map, Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    clock,
    documents::workspace_document,
    route::{Asked, related},
    run_routes,
    state::{State, Workspace},
    state_versions,
};

/// Largest value of a variable, in bytes.
const LARGEST: usize = 256 * 1024;

fn shown(state: &State, status: u16, id: &str) -> Answer {
    answer::document(status, &json!({"data": workspace_document(state, id)}))
}

fn attributes(asked: &Asked<'_>) -> Map<String, Value> {
    let attributes = asked.body.pointer("/data/attributes").and_then(Value::as_object);
    attributes.cloned().unwrap_or_default()
}

/// Creates a workspace, with its tags and its project as relationships.
pub(super) fn create(tfc: &TestTfc, asked: &Asked<'_>) -> Answer {
    let mut attributes = attributes(asked);
    let Some(Value::String(name)) = attributes.remove("name").filter(|name| *name != json!(""))
    else {
        return answer::error(422, "invalid attribute", "Name can't be blank");
    };
    if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) {
        return answer::error(
            422,
            "invalid attribute",
            "Name can only include letters, numbers, -, and _.",
        );
    }
    tfc.change(|state| {
        if state.workspace_named(&name).is_some() {
            return answer::error(422, "invalid attribute", "Name has already been taken");
        }
        let pool = attributes.remove("agent-pool-id");
        let mut workspace = Workspace { name, ..Workspace::default() };
        (workspace.created_at, workspace.updated_at) = (clock::now(), clock::now());
        workspace.pool = pool.and_then(|pool| pool.as_str().map(str::to_owned));
        workspace.project = related(&asked.body, "project").map(str::to_owned);
        for tag in tags_in(asked.body.pointer("/data/relationships/tags/data")) {
            add_tag(&mut workspace, tag);
        }
        for (key, value) in bindings_in(asked.body.pointer("/data/relationships/tag-bindings/data"))
        {
            bind(&mut workspace, key, value);
        }
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
        ("PATCH", []) => change(tfc, asked, id),
        ("DELETE", []) => tfc.change(|state| {
            state.workspaces.remove(id);
            answer::empty(204)
        }),
        ("GET", ["runs"]) => run_routes::list(&tfc.state(), asked, Some(id)),
        ("POST", ["configuration-versions"]) => run_routes::new_version(tfc, asked, id),
        ("GET", ["configuration-versions"]) => run_routes::versions(&tfc.state(), asked, id),
        (_, ["state-versions" | "current-state-version" | "current-state-version-outputs", ..]) => {
            state_versions::of_workspace(tfc, asked, id, rest)
        }
        ("POST", ["actions", action]) => act(tfc, asked, id, action),
        (_, ["relationships", "tags"]) => tags(tfc, asked, id),
        (_, ["tag-bindings" | "effective-tag-bindings"]) => bindings(tfc, asked, id),
        (_, ["vars", rest @ ..]) => variables(tfc, asked, id, rest),
        ("GET", ["all-vars"]) => variables(tfc, asked, id, &[]),
        _ => answer::not_found(),
    }
}

fn change(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    tfc.change(|state| {
        let mut changed = attributes(asked);
        let name = changed.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        let taken = name.as_deref().and_then(|name| state.workspace_named(name));
        if taken.is_some_and(|(other, _)| other != id) {
            return answer::error(422, "invalid attribute", "Name has already been taken");
        }
        let pool = changed.remove("agent-pool-id");
        if let Some(workspace) = state.workspaces.get_mut(id) {
            if let Some(pool) = pool {
                workspace.pool = pool.as_str().map(str::to_owned);
            }
            if let Some(name) = name {
                workspace.name = name;
            }
            if let Some(project) = related(&asked.body, "project") {
                workspace.project = Some(project.to_owned());
            }
            workspace.attributes.extend(changed);
            workspace.updated_at = clock::now();
        }
        shown(state, 200, id)
    })
}

fn act(tfc: &TestTfc, asked: &Asked<'_>, id: &str, action: &str) -> Answer {
    tfc.change(|state| {
        let under_way = |run: &&super::state::Run| run.workspace == id && run.occupies();
        let busy = state.runs.values().any(|run| under_way(&run));
        let holder = state.runs.iter().find(|(_, run)| under_way(run) && run.status != "pending");
        let holder = holder.map(|(id, _)| id.clone());
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        match (action, workspace.is_locked()) {
            ("lock", true) => return answer::conflict("is locked by User double"),
            ("lock", false) if holder.is_some() => {
                let holder = holder.unwrap_or_default();
                return answer::conflict(&format!("is locked by Run {holder}"));
            }
            ("unlock" | "force-unlock", false) => {
                // The run that goes on holds it, and lets go by itself.
                let detail = holder.map(|run| format!("is locked by Run {run}"));
                return answer::conflict(detail.as_deref().unwrap_or("is not locked"));
            }
            ("lock" | "unlock" | "force-unlock", _) => {
                let reason = asked.body.get("reason").filter(|_| action == "lock");
                let reason = reason.cloned().unwrap_or_default();
                workspace.attributes.insert("locked".to_owned(), (action == "lock").into());
                workspace.attributes.insert("locked-reason".to_owned(), reason);
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

/// Returns the names in a list of tags.
fn tags_in(list: Option<&Value>) -> Vec<String> {
    let all = list.and_then(Value::as_array).into_iter().flatten();
    let named = all.filter_map(|tag| tag.pointer("/attributes/name")?.as_str());
    named.map(str::to_owned).collect()
}

/// Returns the pairs in a list of key-value tags; one without a value is a tag.
fn bindings_in(list: Option<&Value>) -> Vec<(String, String)> {
    let all = list.and_then(Value::as_array).into_iter().flatten();
    let pairs = all.map(|binding| {
        let text = |name: &str| {
            let value = binding.pointer(&format!("/attributes/{name}"));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        (text("key"), text("value"))
    });
    pairs.filter(|(key, _)| !key.is_empty()).collect()
}

fn add_tag(workspace: &mut Workspace, tag: String) {
    if !workspace.has_tag(&tag) {
        workspace.tags.push(tag);
    }
}

fn bind(workspace: &mut Workspace, key: String, value: String) {
    if value.is_empty() {
        add_tag(workspace, key);
    } else {
        workspace.bindings.insert(key, value);
    }
}

fn tags(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    let named = tags_in(asked.body.get("data"));
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
                    add_tag(workspace, name);
                }
                answer::empty(204)
            }
            // All that there are, as JSON:API has it of a relationship.
            "PATCH" => {
                workspace.tags.clear();
                for name in named {
                    add_tag(workspace, name);
                }
                answer::empty(204)
            }
            "DELETE" => {
                workspace.tags.retain(|tag| !named.contains(tag));
                answer::empty(204)
            }
            method => answer::method_not_allowed(method, "relationships/tags"),
        }
    })
}

/// Answers with key-value tags, and binds those that are given.
fn bindings(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    let given = bindings_in(asked.body.get("data"));
    tfc.change(|state| {
        let Some(workspace) = state.workspaces.get_mut(id) else { return answer::not_found() };
        let mut keys: Vec<&String> = workspace.bindings.keys().collect();
        keys.extend(given.iter().map(|(key, _)| key));
        keys.sort();
        keys.dedup();
        if keys.len() > 10 {
            return answer::error(422, "invalid", "cannot exceed 10 bindings per resource");
        }
        for (key, value) in given {
            bind(workspace, key, value);
        }
        let all = workspace.bindings.iter().map(|(key, value)| {
            json!({"id": format!("tb-{key}"), "type": "tag-bindings",
                "attributes": {"key": key, "value": value}})
        });
        answer::document(200, &json!({"data": all.collect::<Vec<_>>()}))
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
            ("GET", [id]) => match known.get(*id) {
                Some(variable) => {
                    answer::document(200, &json!({"data": variable_document(id, variable)}))
                }
                None => answer::not_found(),
            },
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
    for name in ["hcl", "sensitive"] {
        attributes.entry(name).or_insert(false.into());
    }
    attributes.entry("description").or_insert("".into());
    json!({"id": id, "type": "vars", "attributes": attributes})
}
