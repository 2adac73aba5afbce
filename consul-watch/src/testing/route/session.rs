//! Routes of sessions.

use serde_json::{Value, json};

use super::{Ask, Path, json};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{NewSession, Refused, SessionRecord, State},
};

pub(super) const PATHS: &[Path] = &[
    Path::new("session/create", "PUT"),
    Path::new("session/destroy/", "PUT"),
    Path::new("session/renew/", "PUT"),
    Path::new("session/info/", "GET"),
    Path::new("session/node/", "GET"),
    Path::new("session/list", "GET"),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, now, .. } = ask;
    if let Some((what @ ("destroy" | "renew" | "info" | "node"), id)) = rest.split_once('/') {
        if id.is_empty() {
            let what = if what == "node" { "node name" } else { "session" };
            return Some(Reply::text(400, format!("Missing {what}")));
        }
        // Servers of old look for nothing that is no id.
        if state.is_1_8() && what != "node" && id.len() != 36 {
            let text = "failed session lookup: index error: UUID must be 36 characters";
            return Some(Reply::text(500, text));
        }
    }
    let reply = match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("create", "")) => create(state, ask).into(),
        ("PUT", ("destroy", id)) => destroy(state, ask, id).into(),
        ("PUT", ("renew", id)) => {
            let (found, _) = state.session_info(id);
            if let Some(found) = found
                && let Err(refused) =
                    ask.who.require(Resource::Session, &found.session.node, Access::Write)
            {
                return Some(refused.into());
            }
            match state.session_renew(id, now) {
                Some(found) => Reply::json(&json::sessions(&[found])),
                None => Reply::text(404, format!("Session id '{id}' not found")),
            }
        }
        ("GET", ("info", id)) => {
            let (found, seen) = state.session_info(id);
            listed(ask, found.into_iter().collect()).at(seen)
        }
        ("GET", ("list", "")) => {
            let (found, seen) = state.session_list(|_| true);
            listed(ask, found).at(seen)
        }
        ("GET", ("node", node)) => {
            let (found, seen) =
                state.session_list(|session| session.node.eq_ignore_ascii_case(node));
            listed(ask, found).at(seen)
        }
        _ => return None,
    };
    Some(reply)
}

fn listed(ask: Ask<'_>, mut found: Vec<SessionRecord>) -> Reply {
    let all = found.len();
    found.retain(|found| ask.who.allows(Resource::Session, &found.session.node, Access::Read));
    Reply::json(&json::sessions(&found)).filtered(ask.who, found.len() < all)
}

fn create(state: &mut State, ask: Ask<'_>) -> Result<Value, Refused> {
    let new: NewSession = ask.call.json_or_default()?;
    ask.who.require(Resource::Session, new.node_name(), Access::Write)?;
    state.session_create(&new, ask.now).map(|id| json!({ "ID": id }))
}

fn destroy(state: &mut State, ask: Ask<'_>, id: &str) -> Result<Value, Refused> {
    if let (Some(found), _) = state.session_info(id) {
        ask.who.require(Resource::Session, &found.session.node, Access::Write)?;
    }
    state.session_destroy(id, ask.now);
    Ok(Value::Bool(true))
}
