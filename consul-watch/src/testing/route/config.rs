//! Routes of configuration entries.

use serde_json::{Value, json};

use super::{
    Ask, Path,
    call::{bad_request, number},
};
use crate::testing::{
    acl::{Access, Authorizer, Resource},
    answer::Reply,
    go_json,
    state::{NewEntry, Refused, State},
};

pub(super) const PATHS: &[Path] = &[Path::new("config/", "GET,DELETE"), Path::new("config", "PUT")];

/// `path` is all that follows `config`, if anything does.
pub(super) fn answer(state: &mut State, ask: Ask<'_>, path: &str) -> Option<Reply> {
    let (kind, name) = path.split_once('/').unwrap_or((path, ""));
    let answered = match (ask.call.method.as_str(), path.contains('/')) {
        ("PUT", false) if path.is_empty() => put(state, ask),
        ("GET", false) => list(state, ask, kind),
        ("GET", true) => get(state, ask, kind, name),
        ("DELETE", _) => delete(state, ask, kind, name),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn require(
    who: &Authorizer,
    old: bool,
    kind: &str,
    name: &str,
    access: Access,
) -> Result<(), Refused> {
    let (resource, name) = match (kind, access) {
        ("service-defaults" | "service-resolver" | "service-router" | "service-splitter", _)
        | ("ingress-gateway" | "terminating-gateway" | "api-gateway", Access::Read) => {
            (Resource::Service, name)
        }
        ("proxy-defaults" | "mesh" | "jwt-provider", Access::Read) => return Ok(()),
        _ if old => (Resource::Operator, ""),
        _ => (Resource::Mesh, ""),
    };
    who.require(resource, name, access)
}

fn known(state: &State, status: u16, kind: &str) -> Result<(), Refused> {
    if state.config_kind_is_known(kind) {
        return Ok(());
    }
    Err(Refused::new(status, format!("invalid config entry kind: {kind}")))
}

fn list(state: &State, ask: Ask<'_>, kind: &str) -> Result<Reply, Refused> {
    if !kind.is_empty() {
        known(state, 500, kind)?;
    }
    let old = state.is_1_8();
    let (found, seen) = state
        .config_list(kind, |kind, name| require(ask.who, old, kind, name, Access::Read).is_ok());
    Ok(Reply::json(&Value::Array(found)).at(seen))
}

fn get(state: &State, ask: Ask<'_>, kind: &str, name: &str) -> Result<Reply, Refused> {
    known(state, 500, kind)?;
    require(ask.who, state.is_1_8(), kind, name, Access::Read)?;
    let (found, seen) = state.config_get(kind, name);
    let reply = found.map_or_else(
        || Reply::text(404, format!("Config entry not found for {kind:?} / {name:?}")),
        |entry| Reply::json(&entry),
    );
    Ok(reply.at(seen).clinging(state.is_1_8()))
}

/// The kind of a value, as Go names it.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

fn put(state: &mut State, ask: Ask<'_>) -> Result<Reply, Refused> {
    let old = state.is_1_8();
    let refused = |text: &str| bad_request(old, &format!("Request decoding failed: {text}"));
    let body = match go_json::value(&ask.call.body) {
        Ok(Value::Object(body)) => body,
        Ok(Value::Array(_)) => return Err(refused("'' expected a map, got 'slice'")),
        Ok(other) => return Err(refused(&format!("'' expected a map, got '{}'", kind_of(&other)))),
        Err(error) => return Err(refused(&error.to_string())),
    };
    let new = NewEntry::read(body, |kind| state.config_kind_is_known(kind))
        .map_err(|text| refused(&text))?;
    let cas = ask.call.param("cas").map(number).transpose()?;
    require(ask.who, old, &new.kind, &new.name, Access::Write)?;
    for target in new.targets() {
        ask.who.require(Resource::Service, &target, Access::Read)?;
    }
    state.config_put(new, cas).map(|done| Reply::json(&done.into()))
}

fn delete(state: &mut State, ask: Ask<'_>, kind: &str, name: &str) -> Result<Reply, Refused> {
    if kind.is_empty() || name.is_empty() {
        return Err(Refused::new(404, "Must provide both a kind and name to delete"));
    }
    known(state, 400, kind)?;
    let cas = ask.call.param("cas").map(number).transpose()?;
    require(ask.who, state.is_1_8(), kind, name, Access::Write)?;
    let done = state.config_delete(kind, name, cas)?;
    let conditional = cas.is_some() && !state.is_1_8();
    Ok(Reply::json(&if conditional { done.into() } else { json!({}) }))
}
