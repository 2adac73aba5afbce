use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Call;
use crate::testing::{
    answer::Reply,
    state::{KvCondition, Refused, State, TxnStep},
};

const VALUE_LIMIT: usize = 512 * 1024;

pub(super) fn answer(state: &mut State, call: &Call, key: &str, now: Instant) -> Reply {
    match call.method {
        Method::GET => read(state, call, key),
        Method::PUT => put(state, call, key, now).map(Value::Bool).into(),
        Method::DELETE => delete(state, call, key).map(Value::Bool).into(),
        _ => Reply::empty(405).header("allow", "GET,PUT,DELETE"),
    }
}

fn read(state: &State, call: &Call, key: &str) -> Reply {
    if call.has("keys") {
        let separator =
            call.param("separator").or_else(|| call.param("seperator")).unwrap_or_default();
        let (pairs, seen) = state.kv_list(key);
        let mut keys: Vec<String> =
            pairs.into_iter().map(|pair| fold(&pair.key, key, separator)).collect();
        keys.dedup();
        if keys.is_empty() && !key.is_empty() {
            return Reply::empty(404).at(seen);
        }
        return Reply::json(&json!(keys)).at(seen);
    }
    if call.has("recurse") {
        let (pairs, seen) = state.kv_list(key);
        return if pairs.is_empty() {
            Reply::empty(404).at(seen)
        } else {
            Reply::json(&json!(pairs)).at(seen)
        };
    }
    if key.is_empty() {
        return Reply::text(400, "Missing key name");
    }
    let (pair, seen) = state.kv_get(key);
    let Some(pair) = pair else {
        return Reply::empty(404).at(seen);
    };
    if call.has("raw") {
        let mut reply = Reply::text(200, "").header("x-content-type-options", "nosniff");
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

fn put(state: &mut State, call: &Call, key: &str, now: Instant) -> Result<bool, Refused> {
    if key.is_empty() {
        return Err(Refused::new(400, "Missing key name"));
    }
    let condition = KvCondition {
        cas: call.param("cas").map(number).transpose()?,
        acquire: call.param("acquire").map(str::to_owned),
        release: call.param("release").map(str::to_owned),
    };
    let given = [condition.cas.is_some(), condition.acquire.is_some(), condition.release.is_some()];
    if given.into_iter().filter(|given| *given).count() > 1 {
        return Err(Refused::new(
            400,
            "Conflicting flags: only one of cas, acquire and release can be used",
        ));
    }
    if call.body.len() > VALUE_LIMIT {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_LIMIT} bytes.",
            call.body.len()
        );
        return Err(Refused::new(413, text));
    }
    let flags = call.param("flags").map(number).transpose()?.unwrap_or(0);
    state.kv_put(key, call.body.clone(), flags, &condition, now)
}

fn delete(state: &mut State, call: &Call, key: &str) -> Result<bool, Refused> {
    let cas = call.param("cas").map(number).transpose()?;
    if !call.has("recurse") {
        if key.is_empty() {
            return Err(Refused::new(400, "Missing key name"));
        }
        return Ok(state.kv_delete(key, cas));
    }
    if cas.is_some() {
        return Err(Refused::new(
            400,
            "Conflicting flags: cas and recurse cannot be used together",
        ));
    }
    state.kv_delete_tree(key);
    Ok(true)
}

fn number(text: &str) -> Result<u64, Refused> {
    text.parse().map_err(|_bad| {
        Refused::new(500, format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
    })
}

pub(super) fn transact(state: &mut State, call: &Call, now: Instant) -> Reply {
    #[derive(serde::Deserialize)]
    struct Step {
        #[serde(rename = "KV")]
        kv: TxnStep,
    }
    if call.body.len() > VALUE_LIMIT {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_LIMIT} bytes.",
            call.body.len()
        );
        return Reply::text(413, text);
    }
    let steps: Vec<TxnStep> = match serde_json::from_slice::<Vec<Step>>(&call.body) {
        Ok(steps) => steps.into_iter().map(|step| step.kv).collect(),
        Err(error) => return Reply::text(400, format!("Failed to parse body: {error}")),
    };
    let limit = state.txn_limit();
    if steps.len() > limit {
        let text = format!("Transaction contains too many operations ({} > {limit})", steps.len());
        return Reply::text(413, text);
    }
    match state.transact(&steps, now) {
        Ok(found) => {
            let results: Vec<Value> = found.iter().map(|pair| json!({ "KV": pair })).collect();
            Reply::json(&json!({ "Results": results, "Errors": null }))
        }
        Err(failed) => {
            let errors: Vec<Value> =
                failed.iter().map(|(at, what)| json!({ "OpIndex": at, "What": what })).collect();
            let mut reply = Reply::json(&json!({ "Results": null, "Errors": errors }));
            reply.status = 409;
            reply
        }
    }
}
