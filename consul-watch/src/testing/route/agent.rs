//! Routes of `/v1/agent/` for services, checks and maintenance.

use serde_json::{Map, Value, json};

use super::{
    Ask, Path, agent_health,
    json::{agent_service_json, check_json},
};
use crate::{
    testing::{
        acl::{Access, Resource},
        answer::Reply,
        filter::{Schema, schema},
        state::{CheckUpdate, NODE, Refused, State},
    },
    types::HealthStatus,
};

pub(super) const PATHS: &[Path] = &[
    Path::new("agent/services", "GET"),
    Path::new("agent/service/", "GET"),
    Path::new("agent/checks", "GET"),
    Path::new("agent/maintenance", "PUT"),
    Path::new("agent/health/service/id/", "GET"),
    Path::new("agent/health/service/name/", "GET"),
    Path::new("agent/check/register", "PUT"),
    Path::new("agent/check/deregister/", "PUT"),
    Path::new("agent/check/pass/", "PUT"),
    Path::new("agent/check/warn/", "PUT"),
    Path::new("agent/check/fail/", "PUT"),
    Path::new("agent/check/update/", "PUT"),
    Path::new("agent/service/register", "PUT"),
    Path::new("agent/service/deregister/", "PUT"),
    Path::new("agent/service/maintenance/", "PUT"),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, now } = ask;
    let old = state.is_1_8();
    let parts: Vec<&str> = rest.splitn(3, '/').collect();
    let reply = match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["services"]) => services(state, ask).into(),
        ("GET", ["checks"]) => checks(state, ask).into(),
        ("PUT", ["service", "register"]) => {
            let done = call.json().and_then(|body| {
                let replace = call.param("replace-existing-checks").is_some_and(is_true);
                state.agent_register_service(body, replace, who, now)
            });
            done.into()
        }
        ("PUT", ["service", "deregister", id]) if id.is_empty() && old => {
            Reply::text(500, "ServiceID missing")
        }
        ("PUT", ["service", "deregister", id]) => vet_service(state, ask, id)
            .and_then(|()| state.agent_deregister_service(id, now))
            .into(),
        ("PUT", ["service", "maintenance", id]) => maintenance(state, ask, Some(id)).into(),
        ("PUT", ["maintenance"]) => maintenance(state, ask, None).into(),
        ("PUT", ["check", "register"]) => {
            call.json().and_then(|body| state.agent_register_check(body, who, now)).into()
        }
        ("PUT", ["check", "deregister", id]) if id.is_empty() && old => {
            Reply::text(500, "CheckID missing")
        }
        ("PUT", ["check", "deregister", id]) => {
            vet_check(state, ask, id).and_then(|()| state.agent_deregister_check(id, now)).into()
        }
        ("PUT", ["check", verb @ ("pass" | "warn" | "fail" | "update"), id]) => {
            check_update(ask, verb)
                .and_then(|update| {
                    vet_check(state, ask, id)?;
                    state.agent_update_check(id, update, now)
                })
                .into()
        }
        ("GET", ["health", _, _]) => {
            return agent_health::answer(state, ask, rest.strip_prefix("health/")?);
        }
        ("GET", ["service", ..]) => {
            service(state, ask, rest.strip_prefix("service/").unwrap_or_default()).into()
        }
        _ => return None,
    };
    Some(reply)
}

/// The entries of an object that match the request's filter.
fn narrowed(
    ask: Ask<'_>,
    items: impl Iterator<Item = (String, Value)>,
    schema: fn() -> Schema,
) -> Result<Value, Refused> {
    let filter = ask.call.filter(schema)?;
    let items = items.filter(|(_, item)| filter.as_ref().is_none_or(|filter| filter.matches(item)));
    Ok(Value::Object(items.collect::<Map<String, Value>>()))
}

fn services(state: &State, ask: Ask<'_>) -> Result<Value, Refused> {
    let seen = state.agent.services().filter(|service| ask.sees_service(&service.name));
    let shown = seen.map(|service| (service.id.clone(), agent_service_json(state, service)));
    narrowed(ask, shown, schema::service)
}

fn checks(state: &State, ask: Ask<'_>) -> Result<Value, Refused> {
    let seen = state.agent.checks().filter(|check| {
        if check.service_id.is_empty() {
            ask.sees_node(&check.node)
        } else {
            ask.sees_service(&check.service_name)
        }
    });
    let shown = seen.map(|check| (check.check_id.clone(), check_json(state, check)));
    narrowed(ask, shown, schema::check)
}

fn service(state: &State, ask: Ask<'_>, id: &str) -> Result<Reply, Refused> {
    let Some((service, hash)) = state.agent.service(id) else {
        return Err(Refused::new(404, format!("unknown service ID: {id}")));
    };
    ask.who.require(Resource::Service, &service.name, Access::Read)?;
    let mut value = agent_service_json(state, service);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("ContentHash".to_owned(), json!(hash));
    }
    Ok(Reply::json(&value).hashed(hash))
}

/// Refuses who may not change a service of the agent. Old servers refuse
/// unknown ones here, with words of their own.
fn vet_service(state: &State, ask: Ask<'_>, id: &str) -> Result<(), Refused> {
    match state.agent.service(id) {
        Some((service, _)) => {
            ask.who.require_of_agent(Resource::Service, &service.name, Access::Write)
        }
        None if state.is_1_8() && ask.who.enforces() => {
            Err(Refused::new(500, format!("Unknown service {{{id:?} {{}}}}")))
        }
        None => Ok(()),
    }
}

fn vet_check(state: &State, ask: Ask<'_>, id: &str) -> Result<(), Refused> {
    match state.agent.check(id) {
        Some(check) if check.service_id.is_empty() => {
            ask.who.require_of_agent(Resource::Node, NODE, Access::Write)
        }
        Some(check) => {
            ask.who.require_of_agent(Resource::Service, &check.service_name, Access::Write)
        }
        None if state.is_1_8() && ask.who.enforces() => {
            Err(Refused::new(500, format!("Unknown check {id:?}")))
        }
        None => Ok(()),
    }
}

fn maintenance(state: &mut State, ask: Ask<'_>, service: Option<&str>) -> Result<(), Refused> {
    if service.is_some_and(str::is_empty) {
        return Err(Refused::new(400, "Missing service ID"));
    }
    let Some(given) = ask.call.param("enable") else {
        return Err(Refused::new(400, "Missing value for enable"));
    };
    let enable = go_bool(given)
        .ok_or_else(|| Refused::new(400, format!("Invalid value for enable: {given:?}")))?;
    match service {
        Some(id) => vet_service(state, ask, id)?,
        None => ask.who.require(Resource::Node, NODE, Access::Write)?,
    }
    let reason = ask.call.param("reason").unwrap_or_default();
    state.agent_maintenance(service, enable, reason, ask.now)
}

fn check_update(ask: Ask<'_>, verb: &str) -> Result<CheckUpdate, Refused> {
    let note = || ask.call.param("note").unwrap_or_default().to_owned();
    let status = match verb {
        "pass" => HealthStatus::Passing,
        "warn" => HealthStatus::Warning,
        "fail" => HealthStatus::Critical,
        "update" => {
            #[derive(serde::Deserialize)]
            #[serde(rename_all = "PascalCase", default)]
            #[derive(Default)]
            struct Body {
                status: String,
                output: String,
            }
            let body: Body = ask.call.json()?;
            return match HealthStatus::from(body.status) {
                status @ (HealthStatus::Passing
                | HealthStatus::Warning
                | HealthStatus::Critical) => Ok(CheckUpdate { status, output: body.output }),
                other => Err(Refused::new(400, format!("Invalid check status: '{other}'"))),
            };
        }
        _ => return Err(Refused::new(404, "404 page not found")),
    };
    Ok(CheckUpdate { status, output: note() })
}

/// Reads a boolean as Go's `strconv.ParseBool` does.
pub(super) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn is_true(text: &str) -> bool {
    go_bool(text) == Some(true)
}
