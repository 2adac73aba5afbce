//! Which part of the state a request reads or writes, and the JSON of it.

mod acl;
mod agent;
mod agent_health;
mod call;
mod catalog;
mod chain;
mod cluster;
mod config;
mod connect;
mod event;
mod json;
mod kv;
mod query;
mod session;
mod txn;

use tokio::time::Instant;

use super::{
    acl::Authorizer,
    answer::Reply,
    state::{Refused, Seen, State},
};

pub(super) use call::Call;

/// What the parts of the API know of a request.
#[derive(Debug, Clone, Copy)]
struct Ask<'a> {
    call: &'a Call,
    who: &'a Authorizer,
    now: Instant,
}

/// Carries a call out. A read may be carried out again and again while it blocks.
pub(super) fn answer(state: &mut State, call: &Call, now: Instant) -> Reply {
    let path = call.path.strip_prefix("v1/").unwrap_or_default();
    let who = match authorize(state, call, path) {
        Ok(who) => who,
        Err(refused) => return refused.into(),
    };
    let ask = Ask { call, who: &who, now };
    if let Some(key) = path.strip_prefix("kv/").or_else(|| (path == "kv").then_some("")) {
        return kv::answer(state, ask, key);
    }
    if path == "txn" && call.method == http::Method::PUT {
        return txn::transact(state, ask);
    }
    let (area, rest) = path.split_once('/').unwrap_or((path, ""));
    let reply = match area {
        "catalog" => catalog::catalog(state, ask, rest),
        "health" => catalog::health(state, ask, rest),
        "agent" => agent::answer(state, ask, rest),
        "config" => Some(config::answer(state, ask, rest)),
        "connect" => connect::answer(state, ask, rest),
        "coordinate" => cluster::coordinate(state, ask, rest),
        "operator" => cluster::operator(state, ask, rest),
        "discovery-chain" => chain::answer(state, ask, rest),
        "event" => event::answer(state, ask, rest),
        "query" => query::answer(state, ask, rest),
        "session" => session::answer(state, ask, rest),
        "status" => status(state, rest),
        "acl" => acl::answer(state, ask, rest),
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::text(404, "404 page not found"))
}

/// Who asks. Some endpoints do not look at the token at all.
fn authorize(state: &State, call: &Call, path: &str) -> Result<Authorizer, Refused> {
    let open = match path {
        "agent/connect/ca/roots"
        | "catalog/datacenters"
        | "connect/ca/roots"
        | "coordinate/datacenters"
        | "acl/bootstrap"
        | "acl/login"
        | "acl/logout" => true,
        "acl/token/self" => call.method == http::Method::GET,
        _ => path.starts_with("status/"),
    };
    if open {
        return Ok(Authorizer::off());
    }
    state.authorizer(state.agent.token_or_default(&call.token))
}

/// Where a read stands that is made up of several.
fn seen(index: u64, content: &impl std::hash::Hash) -> Seen {
    Seen::by_content(index, content)
}

fn status(state: &State, rest: &str) -> Option<Reply> {
    let leader = if state.leader { "127.0.0.1:8300" } else { "" };
    match rest {
        "leader" => Some(Reply::json(&leader.into())),
        "peers" => Some(Reply::json(&vec!["127.0.0.1:8300"].into())),
        _ => None,
    }
}
