//! Differences between the double and real servers that are on purpose.

use consul_watch::testing::Behaviour;

use super::table::Exchange;

/// One difference, or several of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OnPurpose {
    /// The versions of servers that it is a difference to; `None` for all.
    behaviour: Option<Behaviour>,
    /// The start of the request, method and path.
    request: &'static str,
    /// The start of the difference.
    difference: &'static str,
    reason: &'static str,
}

const fn all_servers(
    request: &'static str,
    difference: &'static str,
    reason: &'static str,
) -> OnPurpose {
    OnPurpose { behaviour: None, request, difference, reason }
}

const fn current(
    request: &'static str,
    difference: &'static str,
    reason: &'static str,
) -> OnPurpose {
    OnPurpose { behaviour: Some(Behaviour::Current), request, difference, reason }
}

const REFUSED_READ: &str = "a read that was refused tells no index and no leader: real servers tell ones that mean nothing";
const FIRST_PLACE: &str =
    "the double's server has its place from the start; a real one gets it after some seconds";
const VIRTUAL: &str = "the double gives services no virtual addresses";
const TARGETS: &str = "the double's targets have no settings of their own";
const UNREAD: &str = "a transaction of unknown verbs tells of a read that did not take place";
const UNSERVED: &str = "what the double does not serve is told with 501";
const MACHINE: &str = "numbers of a process and of gossip that the double does not have";

const ALL: &[OnPurpose] = &[
    all_servers("", "refusal's header x-consul-index: nothing instead of", REFUSED_READ),
    all_servers("", "refusal's header x-consul-knownleader: nothing instead of", REFUSED_READ),
    all_servers("", "refusal's header x-consul-lastcontact: nothing instead of", REFUSED_READ),
    current("", "refusal's header x-consul-query-backend: nothing instead of", REFUSED_READ),
    all_servers("GET /v1/coordinate/datacenters", "body : [", FIRST_PLACE),
    current("GET /v1/catalog/connect/", "body /0/ServiceTaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/catalog/node/", "body /Services/db-proxy/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/catalog/node/", "body /Services/native/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/internal/ui/node/", "body /Services/0/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/internal/ui/nodes", "body /0/Services/0/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/internal/ui/nodes", "body /2/Services/0/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/health/connect/", "body /0/Service/TaggedAddresses: lacks", VIRTUAL),
    current("GET /v1/exported-services", "", UNSERVED),
    current("GET /v1/discovery-chain/", "body /Chain/AutoVirtualIPs", VIRTUAL),
    current("POST /v1/discovery-chain/", "body /Chain/AutoVirtualIPs", VIRTUAL),
    current("GET /v1/discovery-chain/", "body /Chain/ManualVirtualIPs", VIRTUAL),
    current("POST /v1/discovery-chain/", "body /Chain/ManualVirtualIPs", VIRTUAL),
    current("GET /v1/discovery-chain/", "body /Chain/Targets/", TARGETS),
    current("POST /v1/discovery-chain/", "body /Chain/Targets/", TARGETS),
    all_servers(
        "POST /v1/discovery-chain/",
        "body /Chain/CustomizationHash",
        "a hash of Consul's own structures",
    ),
    all_servers(
        "GET /v1/agent/health/",
        "body ",
        "checks of nodes show a definition that depends on how they were registered",
    ),
    current("GET /v1/health/service/db?cached", "header ", "the double has no streaming backend"),
    current("PUT /v1/txn", "refusal's header x-consul-knownleader", UNREAD),
    current("GET /v1/catalog/node-services/", "body /Services/0/TaggedAddresses", VIRTUAL),
    current("PUT /v1/txn", "body /KnownLeader", UNREAD),
    current("PUT /v1/txn", "body /Index", UNREAD),
    all_servers(
        "GET /v1/session/list",
        "body /0/LockDelay",
        "Consul keeps a delay below zero, which is none",
    ),
    all_servers("GET /v1/agent/self", "body /Stats/", MACHINE),
    all_servers(
        "GET /v1/agent/self",
        "body /DebugConfig/",
        "settings of the servers that the tests start",
    ),
    all_servers(
        "GET /v1/agent/self",
        "body /xDS",
        "the double tells which proxies it knows although it serves no gRPC",
    ),
    all_servers(
        "OPTIONS /v1/query/x",
        "",
        "real servers write a structure of their own into this one body",
    ),
];

/// All of them.
pub(super) fn all() -> Vec<OnPurpose> {
    ALL.to_vec()
}

/// Returns `true` for a difference that shows on a real server now and then: an agent that has
/// compared a service with `EnableTagOverride` with the catalog holds its missing tags as an empty
/// list from then on, and stores that when it next writes the service.
pub(super) fn is_race(exchange: &Exchange, difference: &str) -> bool {
    exchange.to_string().contains("GET /v1/internal/ui/nodes")
        && difference.ends_with("/Tags: null instead of []")
}

/// The entry that allows this difference.
pub(super) fn find(
    behaviour: Behaviour,
    exchange: &Exchange,
    difference: &str,
) -> Option<OnPurpose> {
    let request = format!("{} {}", exchange.method, exchange.target);
    ALL.iter().copied().find(|entry| {
        entry.behaviour.is_none_or(|only| only == behaviour)
            && request.starts_with(entry.request)
            && difference.starts_with(entry.difference)
            && !entry.reason.is_empty()
    })
}
