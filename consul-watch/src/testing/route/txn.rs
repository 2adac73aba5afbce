use serde_json::{Value, json};

use super::{
    Ask,
    call::go_words,
    json::{check_json, node_json, service_json},
    kv::VALUE_LIMIT,
};
use crate::testing::{
    answer::Reply,
    state::{State, TxnFound, TxnStep},
};

pub(super) fn transact(state: &mut State, ask: Ask<'_>) -> Reply {
    let Ask { call, who, now } = ask;
    if call.body.len() > VALUE_LIMIT {
        let text = format!(
            "Request body({} bytes) too large, max size: {VALUE_LIMIT} bytes.",
            call.body.len()
        );
        return Reply::text(413, text);
    }
    let steps: Vec<TxnStep> = match serde_json::from_slice(&call.body) {
        Ok(steps) => steps,
        Err(error) => {
            let problem = if call.body.is_empty() { "EOF".to_owned() } else { go_words(&error) };
            return Reply::text(400, format!("Failed to parse body: {problem}"));
        }
    };
    let limit = state.txn_limit();
    if steps.len() > limit {
        let text = format!("Transaction contains too many operations ({} > {limit})", steps.len());
        return Reply::text(413, text);
    }
    let denied: Vec<(usize, String)> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| step.vet(who).err().map(|refused| (at, refused.text)))
        .collect();
    let outcome = if denied.is_empty() { state.transact(&steps, now) } else { Err(denied) };
    match outcome {
        Ok(mut found) => {
            // What may not be read is left out without a word.
            found.retain(|found| found.is_seen_by(who));
            let results: Vec<Value> = found.iter().map(result).collect();
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

fn result(found: &TxnFound) -> Value {
    match found {
        TxnFound::Kv(pair) => json!({ "KV": pair }),
        TxnFound::Node(node) => json!({ "Node": node_json(node) }),
        TxnFound::Service(service) => json!({ "Service": service_json(service) }),
        TxnFound::Check(check) => json!({ "Check": check_json(check) }),
    }
}
