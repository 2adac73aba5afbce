use http::Method;
use serde_json::json;

use super::{Ask, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{ChainOverride, Refused, State},
};

/// `service` is what follows `discovery-chain/`.
pub(super) fn answer(state: &State, ask: Ask<'_>, service: &str) -> Option<Reply> {
    if !matches!(ask.call.method, Method::GET | Method::POST) {
        return None;
    }
    Some(chain(state, ask, service).unwrap_or_else(Reply::from))
}

fn chain(state: &State, ask: Ask<'_>, service: &str) -> Result<Reply, Refused> {
    if service.is_empty() {
        return Err(bad_request(state.is_1_8(), "Missing chain name"));
    }
    ask.who.require(Resource::Service, service, Access::Read)?;
    let change: ChainOverride = ask.call.json()?;
    let datacenter = ask.call.param("compile-dc").filter(|name| !name.is_empty()).unwrap_or("dc1");
    let (chain, seen) = state.discovery_chain(service, datacenter, &change)?;
    Ok(Reply::json(&json!({ "Chain": chain })).at(seen))
}
