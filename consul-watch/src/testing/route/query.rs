use http::Method;
use serde_json::{Value, json};

use super::{Ask, json::health_entry};
use crate::testing::{
    answer::Reply,
    state::{Execution, QueryBody, Refused, State},
};

type Answered = Result<Reply, Refused>;

/// `rest` is what follows `query/`.
pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = match (&ask.call.method, rest.rsplit_once('/').unwrap_or((rest, ""))) {
        (&Method::POST, ("", "")) => ask
            .call
            .json()
            .and_then(|query: QueryBody| state.query_create(query, ask.who))
            .map(|id| Reply::json(&json!({ "ID": id }))),
        (&Method::GET, ("", "")) => Ok(list(state, ask)),
        (&Method::GET, (name, "execute")) => execute(state, ask, name),
        (&Method::GET, (name, "explain")) => explain(state, ask, name),
        (&Method::GET, (id, "")) => get(state, ask, id),
        (&Method::PUT, (id, "")) => ask
            .call
            .json()
            .and_then(|query: QueryBody| state.query_update(id, query, ask.who))
            .map(|()| Reply::empty(200)),
        (&Method::DELETE, (id, "")) => state.query_delete(id, ask.who).map(|()| Reply::empty(200)),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn list(state: &State, ask: Ask<'_>) -> Reply {
    let (found, index) = state.query_list(ask.who);
    let shown: Vec<Value> = found.iter().map(|query| query.shown_to(ask.who)).collect();
    // The index is told, but nothing waits for it.
    Reply::json(&json!(shown)).header("x-consul-index", index.to_string())
}

fn get(state: &State, ask: Ask<'_>, id: &str) -> Answered {
    let found = state.query_get(id, ask.who)?.ok_or_else(not_found)?;
    Ok(Reply::json(&json!([found.shown_to(ask.who)])))
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
    let nodes: Vec<Value> = found.iter().map(health_entry).collect();
    Ok(Reply::json(&State::query_answer(&query, &nodes)))
}

fn explain(state: &State, ask: Ask<'_>, name: &str) -> Answered {
    let query = state.query_resolve(name)?.ok_or_else(not_found)?;
    State::query_vet_explain(&query, ask.who)?;
    Ok(Reply::json(&json!({ "Query": query.shown_to(ask.who) })))
}

fn not_found() -> Refused {
    Refused::new(404, "Query not found")
}
