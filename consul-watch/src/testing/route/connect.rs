//! Routes of `/v1/connect/`: certificates and intentions.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ask, Path, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    filter::schema,
    go_json,
    state::{IntentionBody, NewCaConfiguration, Refused, Seen, State, Verdict},
};

type Answered = Result<Reply, Refused>;

pub(super) const PATHS: &[Path] = &[
    Path::new("connect/ca/configuration", "GET,PUT"),
    Path::new("connect/ca/roots", "GET"),
    Path::new("connect/intentions", "GET,POST"),
    Path::new("connect/intentions/match", "GET"),
    Path::new("connect/intentions/check", "GET"),
    Path::new("connect/intentions/exact", "GET,PUT,DELETE"),
    Path::new("connect/intentions/", "GET,PUT,DELETE"),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let (what, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let method = ask.call.method.as_str();
    let answered = match (method, what, rest) {
        ("GET", "ca", "roots") => roots(state, ask),
        ("GET", "ca", "configuration") => ask
            .who
            // Since 1.17 the configuration, which may hold secrets, takes the right to write.
            .require(
                Resource::Operator,
                "",
                if state.is_1_8() { Access::Read } else { Access::Write },
            )
            .map(|()| Reply::json(&state.ca_configuration())),
        ("PUT", "ca", "configuration") => configure(state, ask),
        (_, "intentions", "") if !ask.call.path.ends_with('/') => all(state, ask),
        ("GET", "intentions", "match") => matching(state, ask),
        ("GET", "intentions", "check") => check(state, ask),
        (_, "intentions", "exact") if !state.is_1_8() => exact(state, ask),
        (_, "intentions", id) => one(state, ask, id),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

/// The authorities, as PEM if that is asked for. The token does not matter.
pub(super) fn roots(state: &mut State, ask: Ask<'_>) -> Answered {
    let pem = match ask.call.param("pem") {
        None | Some("false" | "0") => false,
        Some("" | "true" | "1") => true,
        Some(_) => {
            let text = "The 'pem' query parameter must be a boolean value";
            return Err(bad_request(state.is_1_8(), text));
        }
    };
    if pem {
        let mut reply = Reply::text(200, state.ca_roots_pem(ask.now)?);
        reply.headers = vec![("content-type", "application/pem-certificate-chain".to_owned())];
        return Ok(reply);
    }
    let (roots, seen) = state.ca_roots(ask.now)?;
    let mut reply = Reply::json(&roots).at(seen);
    reply.quiet_leader = state.is_1_8();
    Ok(reply)
}

/// A service's certificate.
pub(super) fn leaf(state: &mut State, ask: Ask<'_>, service: &str) -> Answered {
    if service.is_empty() {
        let text = if state.is_1_8() {
            "URI must be either service or agent"
        } else {
            "URI must be either workload identity, service, agent, server, or kind"
        };
        return Err(Refused::new(500, text));
    }
    ask.who.require(Resource::Service, service, Access::Write)?;
    let (leaf, seen) = state.ca_leaf(service, ask.now)?;
    Ok(Reply::json(&leaf).at(seen))
}

fn configure(state: &mut State, ask: Ask<'_>) -> Answered {
    let old = state.is_1_8();
    let new: NewCaConfiguration = go_json::from_slice(&ask.call.body)
        .map_err(|error| bad_request(old, &format!("Request decode failed: {error}")))?;
    ask.who.require(Resource::Operator, "", Access::Write)?;
    state.ca_configure(new, ask.now).map(|()| Reply::empty(200))
}

/// Judges a connection to a service of this agent.
pub(super) fn authorize(state: &State, ask: Ask<'_>) -> Answered {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        target: String,
        #[serde(rename = "ClientCertURI")]
        client_cert_uri: String,
    }
    let bad = |text: &str| bad_request(state.is_1_8(), text);
    let body: Body = go_json::from_slice(&ask.call.body)
        .map_err(|error| bad(&format!("Request decode failed: {error}")))?;
    if body.target.is_empty() {
        return Err(bad("Target service must be specified"));
    }
    let uri = body.client_cert_uri.strip_prefix("spiffe://");
    let parts: Vec<&str> = uri.unwrap_or_default().split('/').collect();
    let [_domain, "ns", _namespace, "dc", _datacenter, "svc", source] = parts.as_slice() else {
        return Err(bad("ClientCertURI not a valid Connect identifier"));
    };
    ask.who.require(Resource::Service, &body.target, Access::Write)?;
    let verdict = state.intention_verdict(source, &body.target);
    let reason = match &verdict {
        Verdict::Matched(_, intention) => {
            let which = if state.is_1_8() { "" } else { "L4 " };
            format!("Matched {which}intention: {intention}")
        }
        Verdict::Default(_) if ask.who.enforces() => {
            "Default behavior configured by ACLs".to_owned()
        }
        Verdict::Default(_) if !state.is_1_8() => "Default behavior configured by ACLs".to_owned(),
        Verdict::Default(_) => "ACLs disabled, access is allowed by default".to_owned(),
    };
    Ok(Reply::json(&json!({ "Authorized": verdict.allows(), "Reason": reason })))
}

/// Either end that may be read shows the intention.
fn sees(ask: Ask<'_>, source: &str, destination: &str) -> bool {
    [source, destination].iter().any(|name| ask.who.allows(Resource::Intention, name, Access::Read))
}

fn may_write(ask: Ask<'_>, destination: &str) -> Result<(), Refused> {
    ask.who.require(Resource::Intention, destination, Access::Write)
}

fn body(ask: Ask<'_>) -> Result<IntentionBody, Refused> {
    go_json::from_slice(&ask.call.body)
        .map_err(|error| Refused::new(500, format!("Failed to decode request body: {error}")))
}

fn not_allowed(ask: Ask<'_>) -> Refused {
    Refused::new(405, format!("method {} not allowed", ask.call.method))
}

fn all(state: &mut State, ask: Ask<'_>) -> Answered {
    match ask.call.method.as_str() {
        "GET" => {
            let (list, seen) =
                state.intention_list(|source, destination| sees(ask, source, destination));
            let list = ask.call.narrow(list, schema::intention)?;
            Ok(Reply::json(&Value::Array(list)).at(seen))
        }
        "POST" => {
            let new = body(ask)?;
            may_write(ask, &new.destination_name)?;
            let id = state.intention_create(new, ask.now)?;
            Ok(Reply::json(&json!({ "ID": id })))
        }
        _ => Err(not_allowed(ask)),
    }
}

fn one(state: &mut State, ask: Ask<'_>, id: &str) -> Answered {
    let ends = state.intention_ends(id);
    match ask.call.method.as_str() {
        "GET" => {
            let (found, seen) = state.intention_by_id(id)?;
            if let Some((source, destination)) = &ends
                && !sees(ask, source, destination)
            {
                return Err(ask.who.denied(Resource::Intention, destination, Access::Read));
            }
            let Some(found) = found else {
                return Err(Refused::new(404, "Intention not found"));
            };
            // Only blocking reads get the index here.
            let reply = Reply::json(&found);
            Ok(if ask.call.index == 0 { reply } else { reply.at(seen) })
        }
        "PUT" => {
            let new = body(ask)?;
            may_write(ask, &new.destination_name)?;
            if let Some((_, destination)) = &ends {
                may_write(ask, destination)?;
            }
            state.intention_update(id, new, ask.now)?;
            Ok(Reply::json(&json!({ "ID": id })))
        }
        "DELETE" => {
            if let Some((_, destination)) = &ends {
                may_write(ask, destination)?;
            }
            state.intention_delete(id).map(|()| Reply::json(&true.into()))
        }
        _ => Err(not_allowed(ask)),
    }
}

fn needed<'a>(ask: Ask<'a>, name: &str) -> Result<&'a str, Refused> {
    ask.call
        .param(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| Refused::new(500, format!("required query parameter '{name}' not set")))
}

fn exact(state: &mut State, ask: Ask<'_>) -> Answered {
    let (source, destination) = (needed(ask, "source")?, needed(ask, "destination")?);
    match ask.call.method.as_str() {
        "GET" => {
            let (found, seen) = state.intention_between(source, destination);
            if found.is_some() && !sees(ask, source, destination) {
                return Err(ask.who.denied(Resource::Intention, destination, Access::Read));
            }
            Ok(match found {
                Some(found) => Reply::json(&found).at(seen),
                None => Reply::text(404, "Intention not found").at(seen),
            })
        }
        "PUT" => {
            let mut new = body(ask)?;
            source.clone_into(&mut new.source_name);
            destination.clone_into(&mut new.destination_name);
            may_write(ask, destination)?;
            state.intention_set(new, ask.now).map(|()| Reply::json(&true.into()))
        }
        "DELETE" => {
            may_write(ask, destination)?;
            state.intention_delete_between(source, destination);
            Ok(Reply::json(&true.into()))
        }
        _ => Err(not_allowed(ask)),
    }
}

fn matching(state: &State, ask: Ask<'_>) -> Answered {
    let old = state.is_1_8();
    let by_source = match needed(ask, "by")? {
        "source" => true,
        "destination" => false,
        _ => {
            let text = "'by' parameter must be one of 'source' or 'destination'";
            return Err(Refused::new(500, text));
        }
    };
    needed(ask, "name")?;
    let (mut found, mut content, mut index) = (serde_json::Map::new(), Vec::new(), 1);
    for name in ask.call.all("name") {
        ask.who.require(Resource::Intention, name, Access::Read)?;
        let (list, seen) = state.intention_match(by_source, name);
        let nothing = list.is_empty();
        found.insert(name.clone(), if nothing { Value::Null } else { Value::Array(list) });
        content.push(seen.watched);
        index = seen.index;
    }
    let reply = Reply::json(&Value::Object(found));
    // Servers of old do not tell the index here.
    Ok(if old { reply } else { reply.at(Seen::by_content(index, &content)) })
}

fn check(state: &State, ask: Ask<'_>) -> Answered {
    let source = needed(ask, "source")?;
    let destination = needed(ask, "destination")?;
    if let Some(kind) = ask.call.param("source-type").filter(|kind| *kind != "consul") {
        return Err(Refused::new(500, format!("unsupported SourceType: {kind:?}")));
    }
    ask.who.require(Resource::Service, destination, Access::Read)?;
    let allowed = state.intention_verdict(source, destination).allows();
    Ok(Reply::json(&json!({ "Allowed": allowed })))
}
