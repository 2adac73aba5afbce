//! State versions: what Terraform stores in a workspace, with its outputs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use md5::{Digest as _, Md5};
use serde_json::{Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    clock, query,
    route::{Asked, related},
    state::State,
};

/// State of a workspace at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct StateVersion {
    /// Workspace that it belongs to.
    pub(super) workspace: String,
    pub(super) serial: u64,
    pub(super) lineage: Option<String>,
    pub(super) md5: String,
    /// Terraform's own file; none until it is uploaded.
    pub(super) content: Option<Bytes>,
    /// State in the form of `terraform show -json`.
    pub(super) json: Option<Bytes>,
    /// Run that made it.
    pub(super) run: Option<String>,
    pub(super) created_at: String,
    /// Position among all, as ids count up.
    pub(super) number: u64,
}

impl StateVersion {
    fn parsed(&self) -> Value {
        let content = self.content.as_deref().unwrap_or_default();
        serde_json::from_slice(content).unwrap_or_default()
    }
}

impl State {
    /// Returns the id of the newest state of a workspace that is uploaded.
    pub(super) fn current_state_version(&self, workspace: &str) -> Option<&String> {
        let uploaded = self
            .stored
            .iter()
            .filter(|(_, found)| found.workspace == workspace && found.content.is_some());
        uploaded.max_by_key(|(_, found)| found.number).map(|(id, _)| id)
    }

    /// Returns the newest state of a workspace, as Terraform's own file.
    pub(super) fn current_state(&self, workspace: &str) -> Option<Bytes> {
        let id = self.current_state_version(workspace)?;
        self.stored.get(id)?.content.clone()
    }

    /// Adds the state that a run left, unless it is the one that was there before.
    pub(super) fn add_state_version(&mut self, workspace: &str, run: Option<&str>, content: Bytes) {
        if self.current_state(workspace).as_ref() == Some(&content) {
            return;
        }
        let parsed: Value = serde_json::from_slice(&content).unwrap_or_default();
        let id = self.id("sv");
        let version = StateVersion {
            workspace: workspace.to_owned(),
            serial: parsed.get("serial").and_then(Value::as_u64).unwrap_or_default(),
            lineage: parsed.get("lineage").and_then(Value::as_str).map(str::to_owned),
            md5: md5_of(&content),
            content: Some(content),
            json: None,
            run: run.map(str::to_owned),
            created_at: clock::now(),
            number: self.number(),
        };
        self.stored.insert(id.clone(), version);
        self.count_resources(&id);
    }

    /// Takes the number of resources of a workspace from its state.
    fn count_resources(&mut self, id: &str) {
        let Some(version) = self.stored.get(id) else { return };
        let parsed = version.parsed();
        let listed = parsed.get("resources").and_then(Value::as_array).into_iter().flatten();
        let managed = listed.filter(|found| found.get("mode") == Some(&json!("managed")));
        let instances = managed.map(|found| {
            found.get("instances").and_then(Value::as_array).map_or(0, |all| all.len() as u64)
        });
        let count = instances.sum();
        if let Some(workspace) = self.workspaces.get_mut(&version.workspace) {
            workspace.resources = count;
        }
    }
}

fn md5_of(content: &[u8]) -> String {
    format!("{:x}", Md5::digest(content))
}

/// Returns a state file of made-up resources.
pub(super) fn made_up_state(serial: u64, resources: u64) -> Bytes {
    let listed = (0..resources).map(|number| {
        json!({
            "mode": "managed", "type": "terraform_data", "name": format!("made_up_{number}"),
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{
                "schema_version": 0, "sensitive_attributes": [],
                "attributes": {"id": number.to_string(), "input": null, "output": null,
                    "triggers_replace": null},
            }],
        })
    });
    let state = json!({
        "version": 4, "terraform_version": "1.11.4", "serial": serial,
        "lineage": "00000000-0000-4000-8000-000000000000", "outputs": {},
        "resources": listed.collect::<Vec<_>>(), "check_results": null,
    });
    state.to_string().into()
}

/// Answers for the states of a workspace.
pub(super) fn of_workspace(
    tfc: &TestTfc,
    asked: &Asked<'_>,
    workspace: &str,
    rest: &[&str],
) -> Answer {
    match (asked.method.as_str(), rest) {
        ("POST", ["state-versions"]) => create(tfc, asked, workspace),
        ("GET", ["state-versions"]) => list(&tfc.state(), asked, workspace),
        ("GET", [which @ ("current-state-version" | "current-state-version-outputs")]) => {
            let state = tfc.state();
            let Some(id) = state.current_state_version(workspace) else {
                return answer::not_found();
            };
            if *which == "current-state-version" {
                shown(&state, id, 200, asked)
            } else {
                answer::document(200, &json!({"data": outputs(&state, id, false)}))
            }
        }
        _ => answer::not_found(),
    }
}

/// Answers for a state version by its id, and for lists of them.
pub(super) fn by_id(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    let state = tfc.state();
    match (asked.method.as_str(), rest) {
        ("GET", []) => {
            let name = query::parameter(asked.query, "filter[workspace][name]");
            let found = name.as_deref().and_then(|name| state.workspace_named(name));
            match found {
                Some((id, _)) => list(&state, asked, id),
                None => answer::not_found(),
            }
        }
        ("GET", [id, rest @ ..]) if state.stored.contains_key(*id) => match rest {
            [] => shown(&state, id, 200, asked),
            ["outputs"] => answer::page(&outputs(&state, id, false), asked.query),
            ["download"] => answer::redirect(&format!("{}/_archivist/state/{id}", asked.base)),
            _ => answer::not_found(),
        },
        _ => answer::not_found(),
    }
}

/// Answers for one output, with its value also where it is sensitive.
pub(super) fn output(state: &State, id: &str) -> Answer {
    let version = id.strip_prefix("wsout-").and_then(|rest| rest.rsplit_once('-'));
    let all = version.map(|(number, _)| outputs(state, &format!("sv-{number}"), true));
    let found = all.into_iter().flatten().find(|found| found.get("id") == Some(&json!(id)));
    match found {
        Some(found) => answer::document(200, &json!({ "data": found })),
        None => answer::not_found(),
    }
}

fn list(state: &State, asked: &Asked<'_>, workspace: &str) -> Answer {
    let mut found: Vec<_> =
        state.stored.iter().filter(|(_, found)| found.workspace == workspace).collect();
    found.sort_by_key(|(_, found)| std::cmp::Reverse(found.number));
    let found: Vec<Value> =
        found.iter().map(|(id, found)| document(id, found, &asked.base)).collect();
    answer::page(&found, asked.query)
}

fn shown(state: &State, id: &str, status: u16, asked: &Asked<'_>) -> Answer {
    let Some(found) = state.stored.get(id) else { return answer::not_found() };
    let mut shown = json!({"data": document(id, found, &asked.base)});
    if query::listed(asked.query, "include").iter().any(|what| what == "outputs")
        && let Some(shown) = shown.as_object_mut()
    {
        shown.insert("included".to_owned(), outputs(state, id, false).into());
    }
    answer::document(status, &shown)
}

fn document(id: &str, found: &StateVersion, base: &str) -> Value {
    let parsed = found.parsed();
    let names = output_ids(id, &parsed);
    let links: Vec<Value> =
        names.map(|(id, _, _)| json!({"id": id, "type": "state-version-outputs"})).collect();
    let run = found.run.as_ref().map(|run| json!({"id": run, "type": "runs"}));
    let uploaded = found.content.is_some();
    let address = |kind: &str, there: bool| there.then(|| format!("{base}/_archivist/{kind}/{id}"));
    json!({"id": id, "type": "state-versions", "attributes": {
        "created-at": found.created_at, "serial": found.serial, "lineage": found.lineage,
        "status": if uploaded { "finalized" } else { "pending" },
        "size": found.content.as_ref().map_or(0, Bytes::len),
        "state-version": parsed.get("version"),
        "terraform-version": parsed.get("terraform_version"),
        "resources-processed": uploaded,
        "hosted-state-download-url": address("state", uploaded),
        "hosted-json-state-download-url": address("json-state", found.json.is_some()),
        "hosted-state-upload-url": address("state", !uploaded),
        "hosted-json-state-upload-url": address("json-state", found.json.is_none()),
        "vcs-commit-sha": null, "vcs-commit-url": null,
    }, "relationships": {
        "workspace": {"data": {"id": found.workspace, "type": "workspaces"}},
        "run": {"data": run}, "outputs": {"data": links},
    }})
}

/// Returns the outputs of a state with their ids and names.
fn output_ids<'a>(
    version: &str,
    parsed: &'a Value,
) -> impl Iterator<Item = (String, &'a String, &'a Value)> {
    let number = version.trim_start_matches("sv-").to_owned();
    let all = parsed.get("outputs").and_then(Value::as_object).into_iter().flatten();
    all.enumerate()
        .map(move |(index, (name, output))| (format!("wsout-{number}-{index}"), name, output))
}

fn outputs(state: &State, version: &str, with_secrets: bool) -> Vec<Value> {
    let Some(found) = state.stored.get(version) else { return Vec::new() };
    let parsed = found.parsed();
    let documents = output_ids(version, &parsed).map(|(id, name, output)| {
        let sensitive = output.get("sensitive") == Some(&Value::Bool(true));
        let value = output.get("value").filter(|_| with_secrets || !sensitive);
        let kind = match output.get("value") {
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(_)) => "number",
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
            _ => "string",
        };
        json!({"id": id, "type": "state-version-outputs", "attributes": {
            "name": name, "sensitive": sensitive, "type": kind, "value": value,
            "detailed-type": output.get("type"),
        }})
    });
    documents.collect()
}

fn create(tfc: &TestTfc, asked: &Asked<'_>, workspace: &str) -> Answer {
    let attribute = |name: &str| asked.body.pointer(&format!("/data/attributes/{name}"));
    let text = |name: &str| attribute(name).and_then(Value::as_str);
    let decoded = |name: &str| text(name).and_then(|text| STANDARD.decode(text).ok());
    let (Some(serial), Some(md5)) = (attribute("serial").and_then(Value::as_u64), text("md5"))
    else {
        return answer::error(422, "invalid attribute", "Serial and md5 can't be blank");
    };
    let content = decoded("state").map(Bytes::from);
    if content.as_ref().is_some_and(|content| md5_of(content) != md5) {
        return answer::error(422, "invalid attribute", "Md5 does not match the state");
    }
    let forced = attribute("force").and_then(Value::as_bool).unwrap_or_default();
    let lineage = text("lineage").map(str::to_owned);
    tfc.change(|state| {
        if let Some(refused) = refused(state, workspace, forced, serial, lineage.as_deref(), md5) {
            return refused;
        }
        let id = state.id("sv");
        let version = StateVersion {
            workspace: workspace.to_owned(),
            serial,
            lineage,
            md5: md5.to_owned(),
            content,
            json: decoded("json-state").map(Bytes::from),
            run: related(&asked.body, "run").map(str::to_owned),
            created_at: clock::now(),
            number: state.number(),
        };
        state.stored.insert(id.clone(), version);
        state.count_resources(&id);
        shown(state, &id, 201, asked)
    })
}

/// Refuses a state that would overwrite another's work.
fn refused(
    state: &State,
    workspace: &str,
    forced: bool,
    serial: u64,
    lineage: Option<&str>,
    md5: &str,
) -> Option<Answer> {
    let locked = state.workspaces.get(workspace).is_some_and(super::state::Workspace::is_locked);
    if !locked {
        return Some(answer::conflict("the workspace has to be locked by who writes its state"));
    }
    let current = state.current_state_version(workspace);
    let current = current.and_then(|id| state.stored.get(id)).filter(|_| !forced)?;
    if let (Some(new), Some(old)) = (lineage, current.lineage.as_deref())
        && new != old
    {
        return Some(answer::conflict(&format!("lineage {new:?} is not the state's {old:?}")));
    }
    let stale = serial < current.serial || (serial == current.serial && md5 != current.md5);
    stale.then(|| answer::conflict(&format!("serial {serial} is not above {}", current.serial)))
}

/// Takes the content of a state that was announced.
pub(super) fn upload(tfc: &TestTfc, asked: &Asked<'_>, id: &str, as_json: bool) -> Answer {
    tfc.change(|state| {
        let Some(version) = state.stored.get_mut(id) else { return answer::not_found() };
        if as_json {
            version.json = Some(asked.raw.clone());
            return answer::empty(200);
        }
        if md5_of(asked.raw) != version.md5 {
            return answer::error(422, "invalid", "the state does not match its md5");
        }
        version.content = Some(asked.raw.clone());
        state.count_resources(id);
        answer::empty(200)
    })
}

/// Gives out the content of a state.
pub(super) fn download(state: &State, id: &str, as_json: bool) -> Answer {
    let found = state.stored.get(id);
    let content =
        found.and_then(|found| if as_json { found.json.clone() } else { found.content.clone() });
    content.map_or_else(answer::not_found, |content| answer::bytes(content.to_vec()))
}
