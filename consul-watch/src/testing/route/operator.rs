//! The operator's calls: the Raft configuration, autopilot, the keyring, usage.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ask, Path, agent::go_bool, call::bad_request, cluster::SERVER};
use crate::{
    testing::{
        acl::{Access, Resource},
        answer::Reply,
        go_json,
        state::{AutopilotSettings, NODE, Refused, State, duration},
    },
    types::nullable,
};

type Answered = Result<Reply, Refused>;

pub(super) const PATHS: &[Path] = &[
    Path::new("operator/raft/configuration", "GET"),
    Path::new("operator/raft/transfer-leader", "POST").newer(),
    Path::new("operator/raft/peer", "DELETE"),
    Path::new("operator/keyring", "GET,POST,PUT,DELETE"),
    Path::new("operator/usage", "GET").newer(),
    Path::new("operator/autopilot/configuration", "GET,PUT"),
    Path::new("operator/autopilot/health", "GET"),
    Path::new("operator/autopilot/state", "GET").newer(),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = match (ask.call.method.as_str(), rest) {
        ("GET", "raft/configuration") => read(ask).map(|()| Reply::json(&raft(state))),
        ("POST", "raft/transfer-leader") => transfer(state, ask),
        ("DELETE", "raft/peer") => remove_peer(state, ask),
        (_, "keyring") => keyring(state, ask),
        ("GET", "usage") => read(ask).map(|()| usage(state)),
        ("GET", "autopilot/configuration") => {
            read(ask).map(|()| Reply::json(&state.autopilot().json()))
        }
        ("PUT", "autopilot/configuration") => configure(state, ask),
        ("GET", "autopilot/health") => read(ask).map(|()| {
            let mut reply = Reply::json(&health(state));
            // Unhealthy servers answer with this status, and the same body.
            reply.status = if state.leader { 200 } else { 429 };
            reply
        }),
        ("GET", "autopilot/state") => read(ask).map(|()| Reply::json(&autopilot_state(state))),
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
    let mut server = json!({
        "ID": id(state), "Node": NODE, "Address": SERVER, "Leader": state.leader,
        "ProtocolVersion": "3", "Voter": true,
    });
    if !state.is_1_8()
        && let Some(server) = server.as_object_mut()
    {
        server.insert("LastIndex".to_owned(), json!(state.last_index()));
    }
    json!({ "Servers": [server], "Index": 0 })
}

/// Refuses: there is nobody else to lead.
fn transfer(state: &State, ask: Ask<'_>) -> Answered {
    ask.who.require(Resource::Operator, "", Access::Write)?;
    let text = match ask.call.param("id").filter(|id| !id.is_empty()) {
        None => "cannot find peer".to_owned(),
        Some(other) if other == id(state) => "cannot transfer leadership to itself".to_owned(),
        Some(other) => format!("Could not find address for server id {other}"),
    };
    Err(Refused::new(500, text))
}

/// Refuses: the only server is no peer of another one.
fn remove_peer(state: &State, ask: Ask<'_>) -> Answered {
    let (what, peer, own) = match (ask.call.param("id"), ask.call.param("address")) {
        (Some(peer), None) => ("id", peer, id(state)),
        (None, Some(peer)) => ("address", peer, SERVER.to_owned()),
        (Some(_), Some(_)) => {
            let text = "Must specify only one of ?id or ?address";
            return Err(bad_request(state.is_1_8(), text));
        }
        (None, None) => {
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

/// Refuses after the checks of Consul: gossip is not encrypted.
fn keyring(state: &State, ask: Ask<'_>) -> Answered {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "Key", deserialize_with = "nullable")]
        _key: String,
    }
    let bad = |text: String| Err(bad_request(state.is_1_8(), &text));
    let reads = ask.call.method == http::Method::GET;
    if !reads && let Err(error) = go_json::from_slice::<Body>(&ask.call.body) {
        return bad(format!("Request decode failed: {error}"));
    }
    if let Some(text) = ask.call.param("relay-factor").filter(|text| !text.is_empty()) {
        match text.parse::<i64>() {
            Err(_) => {
                let words = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
                return bad(format!("Error parsing relay factor: {words}"));
            }
            Ok(0..=5) => {}
            Ok(_) => {
                let words = "Relay factor must be in range: [0, 5]";
                return bad(format!("Invalid relay-factor: {words}"));
            }
        }
    }
    if let Some(text) = ask.call.param("local-only").filter(|text| !text.is_empty())
        && go_bool(text).is_none()
    {
        let words = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
        return bad(format!("Error parsing local-only: {words}"));
    }
    let access = if reads { Access::Read } else { Access::Write };
    if let Err(refused) = ask.who.require(Resource::Keyring, "", access) {
        let words = if reads { "Reading" } else { "Modifying" };
        let text = format!("{words} keyring denied by ACLs");
        return Err(if state.is_1_8() { Refused::new(500, text) } else { refused });
    }
    let problem = if reads { "Keyring is empty" } else { "No keyring to modify" };
    let text = format!(
        "2 errors occurred:\n\t* dc1 (LAN) error: 1/1 nodes reported failure\n\t* {NODE}: {problem} (encryption not enabled)\n\n"
    );
    Err(Refused::new(500, text))
}

fn usage(state: &State) -> Reply {
    let (usage, seen) = state.usage();
    let mut value = usage;
    if let Some(fields) = value.as_object_mut() {
        for (name, value) in state.query_meta(seen.index) {
            fields.insert(name, value);
        }
    }
    Reply::json(&value).at(seen)
}

/// The body that sets autopilot up.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NewSettings {
    cleanup_dead_servers: bool,
    #[serde(deserialize_with = "duration")]
    last_contact_threshold: Option<Duration>,
    max_trailing_logs: u64,
    min_quorum: u64,
    #[serde(deserialize_with = "duration")]
    server_stabilization_time: Option<Duration>,
    redundancy_zone_tag: String,
    disable_upgrade_migration: bool,
    upgrade_version_tag: String,
}

fn configure(state: &mut State, ask: Ask<'_>) -> Answered {
    let old = state.is_1_8();
    let new: NewSettings = go_json::from_slice(&ask.call.body)
        .map_err(|error| bad_request(old, &format!("Error parsing autopilot config: {error}")))?;
    let cas = match ask.call.param("cas") {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_bad| {
            let words = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            bad_request(old, &format!("Error parsing cas value: {words}"))
        })?),
    };
    ask.who.require(Resource::Operator, "", Access::Write)?;
    let settings = AutopilotSettings {
        cleanup_dead_servers: new.cleanup_dead_servers,
        last_contact_threshold: new.last_contact_threshold.unwrap_or_default(),
        max_trailing_logs: new.max_trailing_logs,
        min_quorum: new.min_quorum,
        server_stabilization_time: new.server_stabilization_time.unwrap_or_default(),
        redundancy_zone_tag: new.redundancy_zone_tag,
        disable_upgrade_migration: new.disable_upgrade_migration,
        upgrade_version_tag: new.upgrade_version_tag,
        ..AutopilotSettings::default()
    };
    Ok(Reply::json(&state.set_autopilot(settings, cas).into()))
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

fn autopilot_state(state: &State) -> Value {
    let (id, healthy) = (id(state), state.leader);
    let meta = state.node(NODE).0.map(|(node, _)| node.meta);
    let server = json!({
        "ID": id, "Name": NODE, "Address": SERVER, "NodeStatus": "alive",
        "Version": state.version(), "LastContact": "0s", "LastTerm": 2,
        "LastIndex": state.last_index(), "Healthy": healthy, "StableSince": state.started(),
        "ReadReplica": false, "Status": if healthy { "leader" } else { "voter" }, "Meta": meta,
        "NodeType": "voter",
    });
    json!({
        "Healthy": healthy, "FailureTolerance": 0, "OptimisticFailureTolerance": 0,
        "Servers": { id.as_str(): server }, "Leader": if healthy { id.as_str() } else { "" },
        "Voters": [id],
    })
}
