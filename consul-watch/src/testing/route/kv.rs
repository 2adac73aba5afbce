//! Routes of the KV store.

use http::Method;
use serde_json::{Value, json};

use super::{Ask, Call, Path, call::number};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{KvCondition, Refused, State},
};

pub(super) const VALUE_LIMIT: usize = 512 * 1024;

pub(super) const PATHS: &[Path] = &[Path::new("kv/", "GET,PUT,DELETE")];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, key: &str) -> Option<Reply> {
    Some(match ask.call.method {
        Method::GET => read(state, ask, key),
        Method::PUT => put(state, ask, key).map(Value::Bool).into(),
        Method::DELETE => delete(state, ask, key).map(Value::Bool).into(),
        _ => return None,
    })
}

fn read(state: &State, ask: Ask<'_>, key: &str) -> Reply {
    let Ask { call, who, .. } = ask;
    let listed = || {
        let (mut pairs, seen) = state.kv_list(key);
        let all = pairs.len();
        pairs.retain(|pair| who.allows(Resource::Key, &pair.key, Access::Read));
        let left_out = pairs.len() < all;
        (pairs, move |reply: Reply| reply.filtered(who, left_out).at(seen))
    };
    if call.has("keys") {
        let separator =
            call.param("separator").or_else(|| call.param("seperator")).unwrap_or_default();
        let (pairs, finish) = listed();
        let mut keys: Vec<String> =
            pairs.into_iter().map(|pair| fold(&pair.key, key, separator)).collect();
        keys.dedup();
        if keys.is_empty() && !key.is_empty() {
            return finish(Reply::empty(404));
        }
        return finish(Reply::json(&json!(keys)));
    }
    if call.has("recurse") {
        let (pairs, finish) = listed();
        return finish(if pairs.is_empty() {
            Reply::empty(404)
        } else {
            Reply::json(&json!(pairs))
        });
    }
    if key.is_empty() {
        return Reply::text(400, "Missing key name");
    }
    if let Err(refused) = who.require(Resource::Key, key, Access::Read) {
        return refused.into();
    }
    let (pair, seen) = state.kv_get(key);
    let Some(pair) = pair else {
        return Reply::empty(404).at(seen);
    };
    if call.has("raw") {
        let mut reply = Reply::plain(200, "")
            .header("content-security-policy", "sandbox")
            .header("x-content-type-options", "nosniff");
        reply.body = pair.value;
        return reply.at(seen);
    }
    Reply::json(&json!([pair])).at(seen)
}

/// Cuts a key after the first separator that follows the prefix.
fn fold(key: &str, prefix: &str, separator: &str) -> String {
    let rest = key.strip_prefix(prefix).unwrap_or(key);
    match rest.split_once(separator) {
        Some((first, _)) if !separator.is_empty() => format!("{prefix}{first}{separator}"),
        _ => key.to_owned(),
    }
}

fn put(state: &mut State, ask: Ask<'_>, key: &str) -> Result<bool, Refused> {
    let Ask { call, who, now } = ask;
    if key.is_empty() {
        return Err(Refused::new(400, "Missing key name"));
    }
    let condition = KvCondition {
        cas: call.param("cas").map(number).transpose()?,
        acquire: call.param("acquire").map(str::to_owned),
        release: call.param("release").map(str::to_owned),
    };
    conflicting(call, &["acquire", "cas", "release"])?;
    if call.body.len() > VALUE_LIMIT {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_LIMIT} bytes.",
            call.body.len()
        );
        return Err(Refused::new(413, text));
    }
    let flags = call.param("flags").map(number).transpose()?.unwrap_or(0);
    who.require(Resource::Key, key, Access::Write)?;
    state.kv_put(key, call.body.clone(), flags, &condition, now)
}

/// Refuses parameters that exclude each other, and tells all that were given.
fn conflicting(call: &Call, names: &[&str]) -> Result<(), Refused> {
    if names.iter().filter(|name| call.has(name)).count() < 2 {
        return Ok(());
    }
    Err(Refused::new(400, format!("Conflicting flags: {}", call.query())))
}

fn delete(state: &mut State, ask: Ask<'_>, key: &str) -> Result<bool, Refused> {
    let Ask { call, who, .. } = ask;
    let cas = call.param("cas").map(number).transpose()?;
    if !call.has("recurse") {
        if key.is_empty() {
            return Err(Refused::new(400, "Missing key name"));
        }
        who.require(Resource::Key, key, Access::Write)?;
        return Ok(state.kv_delete(key, cas));
    }
    conflicting(call, &["cas", "recurse"])?;
    who.require_tree(key)?;
    state.kv_delete_tree(key);
    Ok(true)
}
