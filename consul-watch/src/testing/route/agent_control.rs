//! The agent itself: what it is, its members, its tokens, its part in the mesh.

use serde_json::{Value, json};

use super::{Ask, Path, call::bad_request, cluster::SERVER, connect, unserved};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{NODE, Refused, State},
};

type Answered = Result<Reply, Refused>;

pub(super) const PATHS: &[Path] = &[
    Path::new("agent/self", "GET"),
    Path::new("agent/host", "GET"),
    Path::new("agent/version", "GET").newer(),
    Path::new("agent/reload", "PUT"),
    Path::new("agent/monitor", "GET"),
    Path::new("agent/metrics", "GET"),
    Path::new("agent/metrics/stream", "GET").newer(),
    Path::new("agent/members", "GET"),
    Path::new("agent/join/", "PUT"),
    Path::new("agent/leave", "PUT"),
    Path::new("agent/force-leave/", "PUT"),
    Path::new("agent/token/", "PUT"),
    Path::new("agent/connect/authorize", "POST"),
    Path::new("agent/connect/ca/roots", "GET"),
    Path::new("agent/connect/ca/leaf/", "GET"),
];

/// When servers of 1.19 that were built without a date say that they were built.
const BUILT: &str = "1970-01-01T00:00:01Z";

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = match rest {
        "self" => agent(ask, Access::Read).map(|()| Reply::json(&itself(state))),
        "version" => agent(ask, Access::Read).map(|()| Reply::json(&version(state))),
        "reload" => agent(ask, Access::Write).map(|()| Reply::empty(200)),
        "monitor" => monitor(state, ask),
        "metrics" => metrics(state, ask),
        "members" => members(state, ask),
        "leave" => agent(ask, Access::Write).map(|()| {
            state.leave();
            Reply::empty(200)
        }),
        // Machines are not what tests ask about: only who may ask is the same.
        "host" => match ask.who.require(Resource::Operator, "", Access::Read) {
            Ok(()) => return None,
            Err(refused) => Err(refused),
        },
        "metrics/stream" => return None,
        "connect/authorize" => connect::authorize(state, ask).map(cached),
        "connect/ca/roots" => connect::roots(state, ask).map(cached),
        _ => return named(state, ask, rest),
    };
    Some(answered.unwrap_or_else(Reply::from))
}

/// Calls that have a name at their end.
fn named(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = if let Some(kind) = rest.strip_prefix("token/") {
        token(state, ask, kind).map(|()| Reply::empty(200))
    } else if let Some(service) = rest.strip_prefix("connect/ca/leaf/") {
        connect::leaf(state, ask, service)
            .map(|reply| Reply { only_index: true, ..reply }.header("x-cache", "MISS"))
    } else if let Some(address) = rest.strip_prefix("join/") {
        agent(ask, Access::Write).and_then(|()| join(state, address))
    } else if let Some(node) = rest.strip_prefix("force-leave/") {
        force_leave(state, ask, node)
    } else {
        return None;
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn agent(ask: Ask<'_>, access: Access) -> Result<(), Refused> {
    ask.who.require(Resource::Agent, NODE, access)
}

/// Adds the headers of an answer from the agent's cache.
fn cached(reply: Reply) -> Reply {
    if reply.status == 200 {
        return reply.header("x-cache", "HIT").header("age", "0");
    }
    reply
}

fn itself(state: &State) -> Value {
    let old = state.is_1_8();
    let id = id(state);
    let mut config = json!({
        "Datacenter": "dc1", "NodeName": NODE, "NodeID": id, "Revision": "", "Server": true,
        "Version": state.version(),
    });
    let settings = if old {
        include_str!("../data/debug_config_1_8.json")
    } else {
        include_str!("../data/debug_config_1_19.json")
    };
    let mut settings: Value =
        serde_json::from_str(&settings.replace("NODE_ID", &id)).unwrap_or_default();
    let policy = if state.acl_default_allow() { "allow" } else { "deny" };
    let place = if old { "" } else { "/ACLResolverSettings" };
    for (name, value) in
        [("ACLsEnabled", json!(state.acls_enabled())), ("ACLDefaultPolicy", json!(policy))]
    {
        if let Some(place) = settings.pointer_mut(&format!("{place}/{name}")) {
            *place = value;
        }
    }
    let place = state.coordinate_list(|node| node == NODE).0;
    let coordinate = place.pointer("/0/Coord").cloned().unwrap_or_default();
    if !old && let Some(config) = config.as_object_mut() {
        config.insert("PrimaryDatacenter".to_owned(), json!("dc1"));
        config.insert("BuildDate".to_owned(), json!(BUILT));
    }
    let mut value = json!({
        "Config": config, "DebugConfig": settings, "Coord": coordinate, "Member": member(state),
        "Stats": stats(state), "Meta": state.node(NODE).0.map(|(node, _)| node.meta),
    });
    if let Some(fields) = value.as_object_mut() {
        // Without gRPC servers leave it out; what chooses an Envoy needs to know all the same.
        let proxies = json!({ "envoy": state.envoy_versions() });
        let xds = if old { proxies } else { json!({ "SupportedProxies": proxies }) };
        fields.insert("xDS".to_owned(), xds);
    }
    value
}

fn id(state: &State) -> String {
    state.node(NODE).0.map(|(node, _)| node.id).unwrap_or_default()
}

/// Numbers of the server, each as text.
fn stats(state: &State) -> Value {
    let old = state.is_1_8();
    let index = state.last_index().to_string();
    let (services, checks) = (state.agent.services().count(), state.agent.checks().count());
    let mut build = json!({ "prerelease": "", "revision": "", "version": state.version() });
    if !old && let Some(build) = build.as_object_mut() {
        build.insert("version_metadata".to_owned(), json!(""));
    }
    let configuration = format!("[{{Suffrage:Voter ID:{} Address:{SERVER}}}]", id(state));
    json!({
        "agent": {
            "check_monitors": "0", "check_ttls": state.agent.ttls().to_string(),
            "checks": checks.to_string(), "services": services.to_string(),
        },
        "build": build,
        "consul": {
            "acl": if state.acls_enabled() { "enabled" } else { "disabled" }, "bootstrap": "true",
            "known_datacenters": "1", "leader": state.leader.to_string(),
            "leader_addr": if state.leader { SERVER } else { "" }, "server": "true",
        },
        "raft": {
            "applied_index": index, "commit_index": index, "fsm_pending": "0",
            "last_contact": if state.leader { "0" } else { "never" }, "last_log_index": index,
            "last_log_term": "2", "last_snapshot_index": "0", "last_snapshot_term": "0",
            "latest_configuration": configuration, "latest_configuration_index": "0",
            "num_peers": "0", "protocol_version": "3", "protocol_version_max": "3",
            "protocol_version_min": "0", "snapshot_version_max": "1", "snapshot_version_min": "0",
            "state": if state.leader { "Leader" } else { "Follower" }, "term": "2",
        },
        "runtime": {
            "arch": std::env::consts::ARCH, "cpu_count": "1", "goroutines": "0",
            "max_procs": "1", "os": std::env::consts::OS, "version": "",
        },
        "serf_lan": {
            "coordinate_resets": "0", "encrypted": "false", "event_queue": "0", "event_time": "1",
            "failed": "0", "health_score": "0", "intent_queue": "0", "left": "0",
            "member_time": "1", "members": "1", "query_queue": "0", "query_time": "1",
        },
    })
}

fn version(state: &State) -> Value {
    json!({ "SHA": "", "BuildDate": BUILT, "HumanVersion": state.version(), "FIPS": "" })
}

/// The only member of the cluster.
fn member(state: &State) -> Value {
    let mut tags = json!({
        "acls": if state.acls_enabled() { "1" } else { "0" }, "bootstrap": "1",
        "build": format!("{}:", state.version()), "dc": "dc1", "ft_fs": "1", "id": id(state),
        "port": "8300", "raft_vsn": "3", "role": "consul", "segment": "", "vsn": "2",
        "vsn_max": "3", "vsn_min": "2",
    });
    if !state.is_1_8()
        && let Some(tags) = tags.as_object_mut()
    {
        tags.insert("ft_si".to_owned(), json!("1"));
    }
    json!({
        "Name": NODE, "Addr": "127.0.0.1", "Port": 8301, "Tags": tags,
        "Status": if state.has_left() { 3 } else { 1 }, "ProtocolMin": 1, "ProtocolMax": 5,
        "ProtocolCur": 2, "DelegateMin": 2, "DelegateMax": 5, "DelegateCur": 4,
    })
}

fn members(state: &State, ask: Ask<'_>) -> Answered {
    match ask.call.param("segment") {
        None | Some("" | "_all") => {}
        Some(_) => {
            let text = "Network segments are not supported in this version of Consul";
            return Err(Refused::new(500, text));
        }
    }
    if ask.call.param("wan").is_some_and(|wan| !wan.is_empty()) {
        // The server keeps no gossip with other datacenters.
        return Ok(Reply::json(&Value::Null));
    }
    let seen = ask.sees_node(NODE);
    let mut list: Vec<Value> = std::iter::once(member(state)).filter(|_| seen).collect();
    if !state.is_1_8() {
        list = ask.call.narrow(list, crate::testing::filter::schema::member)?;
    }
    Ok(Reply::json(&Value::Array(list)).filtered(ask.who, !seen))
}

/// Refuses what a server refuses; there is no log to stream.
fn monitor(state: &State, ask: Ask<'_>) -> Answered {
    const LEVELS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERR", "ERROR"];
    agent(ask, Access::Read)?;
    let level = ask.call.param("loglevel").filter(|level| !level.is_empty()).unwrap_or("INFO");
    if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        return Err(bad_request(state.is_1_8(), &format!("Unknown log level: {level}")));
    }
    Ok(unserved(ask.call))
}

/// Refuses what a server refuses; nothing is counted or timed.
fn metrics(state: &State, ask: Ask<'_>) -> Answered {
    agent(ask, Access::Read)?;
    if ask.call.param("format") == Some("prometheus") {
        let text = "Prometheus is not enabled since its retention time is not positive";
        return if state.is_1_8() {
            Err(Refused::new(415, text))
        } else {
            Ok(Reply::empty(200).header("x-consul-reason", text))
        };
    }
    Ok(unserved(ask.call))
}

/// Refuses: there is nobody to join.
fn join(state: &State, address: &str) -> Answered {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "8301"));
    let text = if host.is_empty() {
        format!("Failed to resolve {address}: lookup {host}: no such host")
    } else {
        let who = if state.is_1_8() { host } else { address };
        format!("Failed to join {who}: dial tcp {host}:{port}: connect: connection refused")
    };
    Err(Refused::new(500, format!("1 error occurred:\n\t* {text}\n\n")))
}

fn force_leave(state: &State, ask: Ask<'_>, node: &str) -> Answered {
    ask.who.require(Resource::Operator, "", Access::Write)?;
    if node == NODE || (state.is_1_8() && node == format!("{NODE}.dc1")) {
        // Gossip refutes it: the agent is alive.
        return Ok(Reply::empty(200));
    }
    Err(Refused::new(500, format!("agent: No node found with name '{node}'")))
}

/// Gives the agent a token. The default one is for requests without a token.
fn token(state: &mut State, ask: Ask<'_>, kind: &str) -> Result<(), Refused> {
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        token: String,
    }
    if !state.acls_enabled() {
        return Err(Refused::new(401, "ACL support disabled"));
    }
    agent(ask, Access::Write)?;
    let body: Body = ask.call.json()?;
    match kind {
        "default" | "acl_token" => state.agent.set_default_token(body.token),
        "agent"
        | "acl_agent_token"
        | "agent_master"
        | "acl_agent_master_token"
        | "agent_recovery"
        | "replication"
        | "acl_replication_token" => {}
        "config_file_service_registration" | "dns" if !state.is_1_8() => {}
        _ => return Err(Refused::new(404, format!("Token {kind:?} is unknown"))),
    }
    Ok(())
}
