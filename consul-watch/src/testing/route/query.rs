//! Routes of prepared queries.

use http::Method;
use serde_json::{Value, json};

use super::{Ask, Path, json::health_entry};
use crate::testing::{
    answer::Reply,
    state::{Execution, QueryBody, Refused, State},
};

type Answered = Result<Reply, Refused>;

pub(super) const PATHS: &[Path] =
    &[Path::new("query", "GET,POST"), Path::new("query/", "GET,PUT,DELETE")];

/// `rest` is what follows `query/`.
pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let method = &ask.call.method;
    if let Some((_, "execute" | "explain")) = rest.rsplit_once('/')
        && *method != Method::GET
    {
        let text = format!("method {method} not allowed");
        return Some(Reply::text(405, text).header("allow", "GET"));
    }
    let answered = match (method, rest.rsplit_once('/').unwrap_or((rest, ""))) {
        (&Method::POST, ("", "")) => ask
            .call
            .json()
            .and_then(|query: QueryBody| state.query_create(query, ask.who))
            .map(|id| Reply::json(&json!({ "ID": id }))),
        (&Method::GET, ("", "")) if !ask.call.path.ends_with('/') => Ok(list(state, ask)),
        (&Method::GET, (name, "execute")) => execute(state, ask, name),
        (&Method::GET, (name, "explain")) => explain(state, ask, name),
        (&Method::GET, _) => get(state, ask, rest),
        (&Method::PUT, (id, "")) => ask
            .call
            .json_or_default()
            .and_then(|query: QueryBody| state.query_update(id, query, ask.who))
            .map(|()| Reply::empty(200)),
        (&Method::DELETE, (id, "")) => state.query_delete(id, ask.who).map(|()| Reply::empty(200)),
        _ => return None,
    };
    let reply = answered.unwrap_or_else(Reply::from);
    if *method != Method::GET || reply.status != 200 {
        return Some(reply);
    }
    // They tell where they stand, but nothing waits for it.
    let mut reply = reply.header("x-consul-knownleader", state.leader.to_string());
    reply = reply.header("x-consul-lastcontact", "0");
    if !reply.headers.iter().any(|(name, _)| *name == "x-consul-index") {
        reply = reply.header("x-consul-index", state.last_index().to_string());
    }
    Some(if state.is_1_8() {
        reply
    } else {
        reply.header("x-consul-query-backend", "blocking-query")
    })
}

fn list(state: &State, ask: Ask<'_>) -> Reply {
    let (found, index) = state.query_list(ask.who);
    let shown: Vec<Value> = found.iter().map(|query| state.query_shown(query, ask.who)).collect();
    // The index is sent, but nothing waits for it.
    Reply::json(&json!(shown)).header("x-consul-index", index.to_string())
}

fn get(state: &State, ask: Ask<'_>, id: &str) -> Answered {
    let found = state.query_get(id, ask.who)?.ok_or_else(not_found)?;
    Ok(Reply::json(&json!([state.query_shown(found, ask.who)])))
}

fn execute(state: &mut State, ask: Ask<'_>, name: &str) -> Answered {
    let limit = ask.call.param("limit").filter(|limit| !limit.is_empty()).unwrap_or("0");
    let limit = limit.parse::<i64>().map_err(|_bad| {
        let text = format!("Bad limit: strconv.Atoi: parsing {limit:?}: invalid syntax");
        Refused::new(500, text)
    })?;
    let how = Execution {
        limit: usize::try_from(limit).unwrap_or(0),
        connect: ask.call.param("connect").is_some_and(|value| matches!(value, "true" | "1")),
        near: ask.call.param("near").filter(|near| !near.is_empty()),
    };
    let query = state.query_resolve(name)?.ok_or_else(not_found)?;
    let own = query.token().map(|token| state.authorizer(token)).transpose()?;
    let found = state.query_execute(&query, &how, own.as_ref().unwrap_or(ask.who));
    let nodes: Vec<Value> = found.iter().map(|entry| health_entry(state, entry)).collect();
    let answer = State::query_answer(&query, &nodes);
    Ok(Reply::json(&state.query_told(answer, ask.call.consistency())))
}

fn explain(state: &State, ask: Ask<'_>, name: &str) -> Answered {
    let query = state.query_resolve(name)?.ok_or_else(not_found)?;
    State::query_vet_explain(&query, ask.who)?;
    let answer = json!({ "Query": state.query_shown(&query, ask.who) });
    Ok(Reply::json(&state.query_told(answer, ask.call.consistency())))
}

fn not_found() -> Refused {
    Refused::new(404, "Query not found")
}
