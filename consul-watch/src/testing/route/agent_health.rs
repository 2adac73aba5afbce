//! The health of the agent's own services, told by the status of the answer.

use serde_json::{Value, json};

use super::{
    Ask,
    json::{agent_check_json, agent_service_json},
};
use crate::{
    testing::{
        acl::{Access, Resource},
        answer::Reply,
        state::{Refused, State},
    },
    types::{HealthCheck, Service},
};

/// The worse, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Passing,
    Warning,
    Critical,
    Maintenance,
}

impl Health {
    fn of(checks: &[&HealthCheck]) -> Self {
        let worst = checks.iter().map(|check| {
            let id = check.check_id.as_str();
            if id == "_node_maintenance" || id.starts_with("_service_maintenance:") {
                return Self::Maintenance;
            }
            match check.status.as_str() {
                "critical" => Self::Critical,
                "warning" => Self::Warning,
                _ => Self::Passing,
            }
        });
        worst.max().unwrap_or(Self::Passing)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Maintenance => "maintenance",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Passing => 200,
            Self::Warning => 429,
            Self::Critical | Self::Maintenance => 503,
        }
    }
}

pub(super) fn answer(state: &State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let (by, name) = rest.strip_prefix("service/")?.split_once('/')?;
    let answered = match by {
        "id" => by_id(state, ask, name),
        "name" => by_name(state, ask, name),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn judged(state: &State, service: &Service) -> (Health, Value) {
    let all = state.agent.checks();
    let checks: Vec<&HealthCheck> =
        all.filter(|check| check.service_id.is_empty() || check.service_id == service.id).collect();
    let health = Health::of(&checks);
    let checks: Vec<Value> =
        checks.into_iter().map(|check| agent_check_json(state, check)).collect();
    let value = json!({
        "AggregatedStatus": health.word(), "Service": agent_service_json(state, service), "Checks": checks,
    });
    (health, value)
}

fn told(ask: Ask<'_>, status: u16, reason: &str, value: &Value) -> Reply {
    let mut reply = match ask.call.param("format") {
        Some("text") => Reply::plain(status, reason),
        _ => Reply::json(value),
    };
    reply.status = status;
    reply.header("x-consul-reason", reason)
}

fn missing(state: &State, text: &str) -> Refused {
    Refused::new(500, format!("{}{text}", if state.is_1_8() { "Bad request: " } else { "" }))
}

fn by_id(state: &State, ask: Ask<'_>, id: &str) -> Result<Reply, Refused> {
    if id.is_empty() {
        return Err(missing(state, "Missing serviceID"));
    }
    let Some(service) = state.agent.services().find(|service| service.id == id) else {
        let none = json!({ "AggregatedStatus": "critical", "Service": null, "Checks": null });
        let reason = format!("ServiceId {id} not found");
        // Servers of old answer JSON here, whatever was asked for.
        if state.is_1_8() && ask.call.param("format") == Some("text") {
            let mut reply = Reply::json(&json!(reason)).header("x-consul-reason", reason.clone());
            reply.status = 404;
            return Ok(reply);
        }
        return Ok(told(ask, 404, &reason, &none));
    };
    ask.who.require(Resource::Service, &service.name, Access::Read)?;
    let (health, value) = judged(state, service);
    Ok(told(ask, health.status(), health.word(), &value))
}

fn by_name(state: &State, ask: Ask<'_>, name: &str) -> Result<Reply, Refused> {
    if name.is_empty() {
        return Err(missing(state, "Missing service Name"));
    }
    ask.who.require(Resource::Service, name, Access::Read)?;
    let services = state.agent.services().filter(|service| service.name == name);
    let found: Vec<(Health, Value)> = services.map(|service| judged(state, service)).collect();
    let Some(worst) = found.iter().map(|(health, _)| *health).max() else {
        return Ok(told(ask, 404, &format!("ServiceName {name} Not Found"), &json!([])));
    };
    let list = found.into_iter().map(|(_, value)| value).collect();
    Ok(told(ask, worst.status(), worst.word(), &Value::Array(list)))
}
