//! What the double says of the cluster: the places of its nodes, its servers.

use serde_json::{Value, json};

use super::{Ask, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{NODE, Refused, State},
};

type Answered = Result<Reply, Refused>;

const SERVER: &str = "127.0.0.1:8300";

pub(super) fn coordinate(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, .. } = ask;
    let (what, node) = rest.split_once('/').unwrap_or((rest, ""));
    let answered = match (call.method.as_str(), what) {
        ("GET", "datacenters") => {
            let own = state.coordinate_list(|node| node == NODE).0;
            Ok(Reply::json(&json!([{ "Datacenter": "dc1", "AreaID": "wan", "Coordinates": own }])))
        }
        ("GET", "nodes") => {
            let (list, seen) = state.coordinate_list(|node| ask.sees_node(node));
            Ok(Reply::json(&list).at(seen))
        }
        ("GET", "node") => who.require(Resource::Node, node, Access::Read).map(|()| {
            let (list, seen) = state.coordinate_list(|other| other.eq_ignore_ascii_case(node));
            match list.as_array() {
                Some(list) if list.is_empty() => Reply::empty(404),
                _ => Reply::json(&list).at(seen),
            }
        }),
        ("PUT", "update") => update(state, ask),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn update(state: &mut State, ask: Ask<'_>) -> Answered {
    let new: crate::types::NodeCoordinate = ask.call.json()?;
    ask.who.require(Resource::Node, &new.node, Access::Write)?;
    state.coordinate_update(new).map(|()| Reply::empty(200))
}

pub(super) fn operator(state: &State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = match (ask.call.method.as_str(), rest) {
        ("GET", "raft/configuration") => read(ask).map(|()| Reply::json(&raft(state))),
        ("DELETE", "raft/peer") => remove_peer(state, ask),
        ("GET", "autopilot/health") => read(ask).map(|()| {
            let mut reply = Reply::json(&health(state));
            // Unhealthy servers answer with this status, and the same body.
            reply.status = if state.leader { 200 } else { 429 };
            reply
        }),
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn read(ask: Ask<'_>) -> Result<(), Refused> {
    ask.who.require(Resource::Operator, "", Access::Read)
}

fn id(state: &State) -> String {
    state.node(NODE).0.map(|(node, _)| node.id).unwrap_or_default()
}

fn raft(state: &State) -> Value {
    json!({
        "Servers": [{
            "ID": id(state), "Node": NODE, "Address": SERVER, "Leader": state.leader,
            "ProtocolVersion": "3", "Voter": true,
        }],
        "Index": 0,
    })
}

/// Refuses: the only server is no peer of another one.
fn remove_peer(state: &State, ask: Ask<'_>) -> Answered {
    let given = |name| ask.call.param(name).filter(|value| !value.is_empty());
    let (what, peer, own) = match (given("id"), given("address")) {
        (Some(peer), None) => ("id", peer, id(state)),
        (None, Some(peer)) => ("address", peer, SERVER.to_owned()),
        _ => {
            let text = "Must specify either ?id with the server's ID or ?address with IP:port of peer to remove";
            return Err(bad_request(state.is_1_8(), text));
        }
    };
    ask.who.require(Resource::Operator, "", Access::Write)?;
    let text = if peer == own {
        "need at least one voter in configuration".to_owned()
    } else {
        format!("{what} {peer:?} was not found in the Raft configuration")
    };
    Err(Refused::new(500, text))
}

fn health(state: &State) -> Value {
    let healthy = state.leader;
    json!({
        "Healthy": healthy, "FailureTolerance": 0,
        "Servers": [{
            "ID": id(state), "Name": NODE, "Address": SERVER, "SerfStatus": "alive",
            "Version": state.version(), "Leader": healthy, "LastContact": "0s", "LastTerm": 2,
            "LastIndex": state.last_index(), "Healthy": healthy, "Voter": true,
            "StableSince": state.started(),
        }],
    })
}
