//! Route of discovery chains.

use serde_json::json;

use super::{Ask, Path, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    go_json,
    state::{ChainOverride, Refused, State},
};

pub(super) const PATHS: &[Path] = &[Path::new("discovery-chain/", "GET,POST")];

/// `service` is what follows `discovery-chain/`.
#[expect(clippy::unnecessary_wraps, reason = "the signature of every group of endpoints")]
pub(super) fn answer(state: &mut State, ask: Ask<'_>, service: &str) -> Option<Reply> {
    Some(chain(state, ask, service).unwrap_or_else(Reply::from))
}

fn chain(state: &State, ask: Ask<'_>, service: &str) -> Result<Reply, Refused> {
    if service.is_empty() {
        return Err(bad_request(state.is_1_8(), "Missing chain name"));
    }
    ask.who.require(Resource::Service, service, Access::Read)?;
    let change: ChainOverride = if ask.call.method == http::Method::POST {
        go_json::from_slice(&ask.call.body).map_err(|error| {
            bad_request(state.is_1_8(), &format!("Request decoding failed: {error}"))
        })?
    } else {
        ChainOverride::default()
    };
    let datacenter = ask.call.param("compile-dc").filter(|name| !name.is_empty()).unwrap_or("dc1");
    let (chain, seen) = state.discovery_chain(service, datacenter, &change)?;
    Ok(Reply::json(&json!({ "Chain": chain })).at(seen))
}
