use serde_json::{Map, Value, json};

use super::{
    Ask, agent_health, connect, json,
    json::{check_json, service_json},
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

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, now } = ask;
    let parts: Vec<&str> = rest.splitn(3, '/').collect();
    let reply = match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["self"]) => {
            let may = who.require(Resource::Agent, NODE, Access::Read);
            may.map(|()| json::agent_self(state)).into()
        }
        ("GET", ["members"]) => {
            Reply::json(&if ask.sees_node(NODE) { json::members() } else { json!([]) })
        }
        ("GET", ["services"]) => services(state, ask).into(),
        ("GET", ["checks"]) => checks(state, ask).into(),
        ("GET", ["service", id]) => service(state, ask, id).into(),
        ("PUT", ["service", "register"]) => {
            let done = call.json().and_then(|body| state.agent_register_service(body, who, now));
            done.into()
        }
        ("PUT", ["service", "deregister", id]) => vet_service(state, ask, id)
            .and_then(|()| state.agent_deregister_service(id, now))
            .into(),
        ("PUT", ["service", "maintenance", id]) => maintenance(state, ask, Some(id)).into(),
        ("PUT", ["maintenance"]) => maintenance(state, ask, None).into(),
        ("PUT", ["check", "register"]) => {
            call.json().and_then(|body| state.agent_register_check(body, who, now)).into()
        }
        ("PUT", ["check", "deregister", id]) => {
            vet_check(state, ask, id).and_then(|()| state.agent_deregister_check(id, now)).into()
        }
        ("PUT", ["check", verb, id]) => check_update(ask, verb)
            .and_then(|update| {
                vet_check(state, ask, id)?;
                state.agent_update_check(id, update, now)
            })
            .into(),
        ("GET", ["health", _, _]) => {
            return agent_health::answer(state, ask, rest.strip_prefix("health/")?);
        }
        ("GET", ["connect", "ca", "roots"]) => connect::roots(state, ask).into(),
        ("GET", ["connect", "ca", leaf]) if leaf.starts_with("leaf/") => {
            let service = leaf.strip_prefix("leaf/").unwrap_or_default();
            connect::leaf(state, ask, service).into()
        }
        ("POST", ["connect", "authorize"]) => connect::authorize(state, ask).into(),
        ("PUT", ["token", kind]) => token(state, ask, kind).into(),
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
    narrowed(ask, seen.map(|service| (service.id.clone(), service_json(service))), schema::service)
}

fn checks(state: &State, ask: Ask<'_>) -> Result<Value, Refused> {
    let seen = state.agent.checks().filter(|check| {
        if check.service_id.is_empty() {
            ask.sees_node(&check.node)
        } else {
            ask.sees_service(&check.service_name)
        }
    });
    narrowed(ask, seen.map(|check| (check.check_id.clone(), check_json(check))), schema::check)
}

fn service(state: &State, ask: Ask<'_>, id: &str) -> Result<Reply, Refused> {
    let Some((service, hash)) = state.agent.service(id) else {
        return Err(Refused::new(404, format!("unknown service ID: {id}")));
    };
    ask.who.require(Resource::Service, &service.name, Access::Read)?;
    let mut value = service_json(service);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("ContentHash".to_owned(), json!(hash));
        fields.insert("Datacenter".to_owned(), json!("dc1"));
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
    let enable = match ask.call.param("enable") {
        Some("true" | "1") => true,
        Some("false" | "0") => false,
        _ => return Err(Refused::new(400, "Missing value for enable")),
    };
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

/// Gives the agent a token. The default one is for requests without a token.
fn token(state: &mut State, ask: Ask<'_>, kind: &str) -> Result<(), Refused> {
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        token: String,
    }
    if !state.acls_enabled() {
        return Err(Refused::new(401, "ACL support disabled"));
    }
    ask.who.require(Resource::Agent, NODE, Access::Write)?;
    let body: Body = ask.call.json()?;
    match kind {
        "default" | "acl_token" => state.agent.set_default_token(body.token),
        "agent"
        | "acl_agent_token"
        | "agent_master"
        | "acl_agent_master_token"
        | "agent_recovery"
        | "replication"
        | "acl_replication_token" => {}
        "config_file_service_registration" | "dns" if !state.is_1_8() => {}
        _ => return Err(Refused::new(404, format!("Token {kind:?} is unknown"))),
    }
    Ok(())
}
