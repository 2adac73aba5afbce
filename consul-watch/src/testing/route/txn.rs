//! Route of transactions.

use serde_json::{Value, json};

use super::{
    Ask, Path,
    json::{check_json, node_json, service_json},
    kv::VALUE_LIMIT,
};
use crate::testing::{
    answer::Reply,
    go_json,
    state::{State, TxnFound, TxnStep},
};

pub(super) const PATHS: &[Path] = &[Path::new("txn", "PUT")];

#[expect(clippy::unnecessary_wraps, reason = "the signature of every group of endpoints")]
pub(super) fn answer(state: &mut State, ask: Ask<'_>, _rest: &str) -> Option<Reply> {
    Some(transact(state, ask))
}

fn transact(state: &mut State, ask: Ask<'_>) -> Reply {
    let Ask { call, who, now } = ask;
    if call.body.len() > VALUE_LIMIT {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_LIMIT} bytes.",
            call.body.len()
        );
        return Reply::text(413, text);
    }
    let steps: Vec<TxnStep> = match go_json::from_slice(&call.body) {
        Ok(steps) => steps,
        Err(error) => {
            return Reply::text(
                400,
                format!("Failed to parse body: {}", of_go(&error.to_string())),
            );
        }
    };
    let limit = state.txn_limit();
    if steps.len() > limit {
        let text = format!("Transaction contains too many operations ({} > {limit})", steps.len());
        return Reply::text(413, text);
    }
    // What only reads is answered as a read: it says where it stands.
    let reads = steps.iter().all(TxnStep::is_read);
    let old = state.is_1_8();
    let meta = reads.then(|| state.query_meta(u64::from(!old)));
    let told = |mut value: Value| {
        if let (Some(fields), Some(meta)) = (value.as_object_mut(), meta) {
            fields.extend(meta);
        }
        let reply = Reply::json(&value);
        if !reads {
            return reply;
        }
        reply.header("x-consul-knownleader", "true").header("x-consul-lastcontact", "0")
    };
    let denied: Vec<(usize, String)> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| step.validate(who, old).err().map(|refused| (at, refused.text)))
        .collect();
    let outcome = if denied.is_empty() { state.transact(&steps, now) } else { Err(denied) };
    match outcome {
        Ok(mut found) => {
            // What may not be read is left out without a word.
            found.retain(|found| found.is_seen_by(who));
            let results: Vec<Value> = found.iter().map(|found| result(state, found)).collect();
            told(json!({ "Results": results, "Errors": null }))
        }
        Err(failed) => {
            let errors: Vec<Value> =
                failed.iter().map(|(at, what)| json!({ "OpIndex": at, "What": what })).collect();
            let mut reply = told(json!({ "Results": null, "Errors": errors }));
            reply.status = 409;
            reply
        }
    }
}

fn result(state: &State, found: &TxnFound) -> Value {
    match found {
        TxnFound::Kv(pair) => json!({ "KV": pair }),
        TxnFound::Node(node) => json!({ "Node": node_json(node) }),
        TxnFound::Service(service) => {
            json!({ "Service": with_nulls(service_json(state, service), &["Tags"]) })
        }
        TxnFound::Check(check) => {
            json!({ "Check": with_nulls(check_json(state, check), &["ServiceTags"]) })
        }
    }
}

/// Words the error as Go does for values that are no base64.
fn of_go(text: &str) -> String {
    match text.strip_prefix("not base64: ").and_then(|rest| rest.rsplit_once("offset ")) {
        Some((_, offset)) => {
            format!("illegal base64 data at input byte {}", offset.trim_end_matches('.'))
        }
        None => text.to_owned(),
    }
}

/// Shows lists that nobody gave as `null`.
fn with_nulls(mut value: Value, lists: &[&str]) -> Value {
    for list in lists {
        if let Some(list) = value.get_mut(*list)
            && list.as_array().is_some_and(Vec::is_empty)
        {
            *list = Value::Null;
        }
    }
    value
}
