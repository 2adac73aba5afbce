//! Coordinates of nodes, and who leads.

use serde_json::json;

use super::{Ask, Path};
use crate::{
    testing::{
        acl::{Access, Resource},
        answer::Reply,
        state::{NODE, Refused, State},
    },
    types::{Coordinate, NodeCoordinate},
};

type Answered = Result<Reply, Refused>;

/// Address that the double reports for its only server.
pub(super) const SERVER: &str = "127.0.0.1:8300";

pub(super) const COORDINATES: &[Path] = &[
    Path::new("coordinate/datacenters", "GET"),
    Path::new("coordinate/nodes", "GET"),
    Path::new("coordinate/node/", "GET"),
    Path::new("coordinate/update", "PUT"),
];

pub(super) const STATUS: &[Path] =
    &[Path::new("status/leader", "GET"), Path::new("status/peers", "GET")];

pub(super) fn status(state: &mut State, _ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let leader = if state.leader { SERVER } else { "" };
    match rest {
        "leader" => Some(Reply::json(&leader.into())),
        "peers" => Some(Reply::json(&json!([SERVER]))),
        _ => None,
    }
}

pub(super) fn coordinate(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, .. } = ask;
    let (what, node) = rest.split_once('/').unwrap_or((rest, ""));
    let answered = match (call.method.as_str(), what) {
        ("GET", "datacenters") => {
            let own = state.coordinate_list(|node| node == NODE).0;
            Ok(Reply::json(&json!([{ "Datacenter": "dc1", "AreaID": "wan", "Coordinates": own }])))
        }
        ("GET", "nodes") => {
            // All nodes are in the segment without a name.
            let segment = call.param("segment").is_none_or(str::is_empty);
            let (list, seen) = state.coordinate_list(|node| segment && ask.sees_node(node));
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

/// The body of an update.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NewCoordinate {
    node: String,
    coord: Coordinate,
}

fn update(state: &mut State, ask: Ask<'_>) -> Answered {
    let new: NewCoordinate = ask.call.json()?;
    let new = NodeCoordinate::new(new.node, new.coord);
    ask.who.require(Resource::Node, &new.node, Access::Write)?;
    state.coordinate_update(new).map(|()| Reply::empty(200))
}
