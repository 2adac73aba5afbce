//! Which part of the state a request reads or writes, and the JSON of it.
//!
//! Each group of endpoints has a file with its table of paths and its answers.
//! Paths and methods are those of Consul; what a group does not answer gets
//! status 501.

mod acl;
mod agent;
mod agent_control;
mod agent_health;
mod call;
mod catalog;
mod chain;
mod cluster;
mod config;
mod connect;
mod endpoint;
mod event;
mod internal;
mod json;
mod kv;
mod operator;
mod peering;
mod query;
mod session;
mod snapshot;
mod templated_policy;
mod txn;

use http::Method;
use tokio::time::Instant;

use super::{
    acl::Authorizer,
    answer::Reply,
    state::{Refused, State},
};

pub(super) use call::Call;
pub(super) use endpoint::unserved;

use endpoint::{Ask, Path};

type Answer = fn(&mut State, Ask<'_>, &str) -> Option<Reply>;

/// The paths of one file, and what answers them: it is given what follows the area.
struct Group {
    area: &'static str,
    paths: &'static [Path],
    answer: Answer,
}

const GROUPS: &[Group] = &[
    Group { area: "acl", paths: acl::PATHS, answer: acl::answer },
    Group { area: "acl", paths: templated_policy::PATHS, answer: templated_policy::answer },
    Group { area: "agent", paths: agent::PATHS, answer: agent::answer },
    Group { area: "agent", paths: agent_control::PATHS, answer: agent_control::answer },
    Group { area: "catalog", paths: catalog::CATALOG, answer: catalog::catalog },
    Group { area: "config", paths: config::PATHS, answer: config::answer },
    Group { area: "connect", paths: connect::PATHS, answer: connect::answer },
    Group { area: "coordinate", paths: cluster::COORDINATES, answer: cluster::coordinate },
    Group { area: "discovery-chain", paths: chain::PATHS, answer: chain::answer },
    Group { area: "event", paths: event::PATHS, answer: event::answer },
    Group { area: "health", paths: catalog::HEALTH, answer: catalog::health },
    Group { area: "internal", paths: internal::PATHS, answer: internal::answer },
    Group { area: "kv", paths: kv::PATHS, answer: kv::answer },
    Group { area: "operator", paths: operator::PATHS, answer: operator::answer },
    Group { area: "", paths: peering::PATHS, answer: peering::answer },
    Group { area: "query", paths: query::PATHS, answer: query::answer },
    Group { area: "session", paths: session::PATHS, answer: session::answer },
    Group { area: "snapshot", paths: snapshot::PATHS, answer: snapshot::answer },
    Group { area: "status", paths: cluster::STATUS, answer: cluster::status },
    Group { area: "txn", paths: txn::PATHS, answer: txn::answer },
];

/// The group and the path that a request is for; of several the longest.
fn find(path: &str, old: bool) -> Option<(&'static Group, &'static Path)> {
    let all = GROUPS.iter().flat_map(|group| group.paths.iter().map(move |path| (group, path)));
    all.filter(|(_, known)| known.covers(path) && !(old && known.newer))
        .max_by_key(|(_, known)| known.pattern.len())
}

/// Answers at once what no endpoint sees: unknown paths, wrong methods, redirects.
#[expect(clippy::result_large_err, reason = "a refusal is the whole answer to a request")]
pub(super) fn admit(call: &Call, old: bool) -> Result<(), Reply> {
    if let Some(clean) = if old { &call.clean } else { &call.clean_raw } {
        return Err(redirect(call, clean, old));
    }
    let Some(path) = call.path.strip_prefix("v1/") else {
        let text = "Consul Agent: UI disabled. To enable, set ui_config.enabled=true in the agent configuration and restart.";
        return Err(match (call.path.as_str(), old) {
            ("", true) => Reply::text(200, "Consul Agent"),
            ("", false) => Reply::text(200, text),
            ("v1", _) | (_, false) => not_found(old, true),
            _ => Reply::empty(404),
        });
    };
    let Some((_, known)) = find(path, old) else {
        if find(&format!("{path}/"), old).is_some_and(|(_, known)| known.pattern.len() > path.len())
        {
            return Err(redirect(call, &format!("/v1/{path}/"), old));
        }
        return Err(not_found(old, false));
    };
    if call.method == Method::OPTIONS {
        return Err(Reply::empty(200).header("allow", format!("OPTIONS,{}", known.methods)));
    }
    if !known.methods.split(',').any(|method| call.method == method) {
        // Prepared queries see to their methods themselves.
        let (options, methods) = match known.pattern {
            "query/" if path.ends_with("/execute") || path.ends_with("/explain") => ("", "GET"),
            "query/" => ("", known.methods),
            _ => ("OPTIONS,", known.methods),
        };
        let reply = Reply::text(405, format!("method {} not allowed", call.method));
        return Err(reply.header("allow", format!("{options}{methods}")));
    }
    Ok(())
}

fn not_found(old: bool, prefix: bool) -> Reply {
    match (old, prefix) {
        (true, _) => Reply::empty(404),
        (false, true) => Reply::text(
            404,
            "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'",
        ),
        (false, false) => Reply::text(404, "Invalid URL path: not a recognized HTTP API endpoint"),
    }
}

fn redirect(call: &Call, target: &str, old: bool) -> Reply {
    let (status, words) =
        if old { (301, "Moved Permanently") } else { (307, "Temporary Redirect") };
    let text = if call.method == Method::GET {
        format!("<a href=\"{target}\">{words}</a>.\n\n")
    } else {
        String::new()
    };
    let mut reply = Reply::text(status, text).header("location", target);
    reply.headers.retain(|(name, _)| *name != "content-type");
    if matches!(call.method, Method::GET | Method::HEAD) {
        return reply.header("content-type", "text/html; charset=utf-8");
    }
    reply
}

/// Carries a call out. A read may be carried out again and again while it blocks.
pub(super) fn answer(state: &mut State, call: &Call, now: Instant) -> Reply {
    let path = call.path.strip_prefix("v1/").unwrap_or_default();
    let Some((group, _)) = find(path, state.is_1_8()) else {
        return not_found(state.is_1_8(), false);
    };
    let who = match authorize(state, call, path) {
        Ok(who) => who,
        Err(refused) => return refused.into(),
    };
    let rest = path.strip_prefix(group.area).unwrap_or(path);
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let reply = (group.answer)(state, Ask { call, who: &who, now }, rest);
    reply.unwrap_or_else(|| unserved(call))
}

/// Identifies the caller. Some endpoints do not look at the token at all.
fn authorize(state: &State, call: &Call, path: &str) -> Result<Authorizer, Refused> {
    let open = match path {
        "agent/connect/ca/roots"
        | "catalog/datacenters"
        | "connect/ca/roots"
        | "coordinate/datacenters"
        | "acl/bootstrap"
        | "acl/login"
        | "acl/logout" => true,
        "acl/token/self" => call.method == Method::GET,
        _ => path.starts_with("status/"),
    };
    if open {
        return Ok(Authorizer::off());
    }
    state.authorizer(state.agent.token_or_default(&call.token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_answers() {
        let found = |path| find(path, false).map(|(_, known)| known.pattern);
        assert_eq!(found("acl/policy/name/x"), Some("acl/policy/name/"));
        assert_eq!(found("acl/policy/x"), Some("acl/policy/"));
        assert_eq!(found("acl/policy"), Some("acl/policy"));
        assert_eq!(found("acl/policyx"), None);
        assert_eq!(found("agent/service/register"), Some("agent/service/register"));
        assert_eq!(find("agent/version", true).map(|(_, known)| known.pattern), None);
    }

    #[test]
    fn no_path_stands_twice() {
        let mut all: Vec<&str> =
            GROUPS.iter().flat_map(|group| group.paths).map(|path| path.pattern).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
