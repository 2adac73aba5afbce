//! What a Consul server and its local agent keep, with Consul's rules for indexes.

mod acl;
mod agent;
mod catalog;
mod chain;
mod config;
mod connect_ca;
mod coordinate;
mod event;
mod gateway;
mod intention;
mod kv;
mod operator;
mod query;
mod session;
mod sidecar;
#[cfg(test)]
mod tests;
mod txn;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use tokio::time::Instant;

use crate::types::{HealthCheck, Node, Service, Session};

pub(super) use acl::{
    BindingBody, LoginBody, MethodBody, PolicyBody, RoleBody, TEMPLATES, Template, TokenBody,
    TokenFilter,
};
pub(super) use agent::{CheckUpdate, LocalAgent, duration};
pub(super) use catalog::Checks;
pub(super) use chain::ChainOverride;
pub(super) use config::NewEntry;
pub(super) use connect_ca::NewCaConfiguration;
pub(super) use event::EventTarget;
pub(super) use intention::{IntentionBody, Verdict};
pub(super) use kv::KvCondition;
pub(super) use operator::AutopilotSettings;
pub(super) use query::{Execution, QueryBody};
pub(super) use session::NewSession;
pub(super) use txn::{TxnFound, TxnStep};

/// The servers that the double behaves like where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Behaviour {
    /// Consul 1.19.
    #[default]
    Current,
    /// Consul 1.8, the oldest that is supported.
    V1_8,
}

/// Name of the double's only server, and of its agent.
pub(super) const NODE: &str = "test-consul";
pub(super) const SERF: &str = "serfHealth";

/// Why a write was refused: the status and text that Consul answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Refused {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// The index of a read's result, and what its watch channels depend on: a
/// blocked read is woken only when `watched` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) index: u64,
    pub(super) watched: u64,
}

impl Seen {
    /// A read that watches exactly what its index says.
    fn by_index(index: u64) -> Self {
        let index = index.max(1);
        Self { index, watched: index }
    }

    /// A read that watches less than its index covers.
    pub(super) fn by_content(index: u64, content: &impl Hash) -> Self {
        Self { index: index.max(1), watched: fingerprint(content) }
    }
}

pub(super) fn fingerprint(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// A hash of an object's contents, as long as Consul's.
fn content_hash(content: &impl Hash) -> String {
    let bytes: Vec<u8> =
        (0_u8..4).flat_map(|salt| fingerprint(&(salt, content)).to_be_bytes()).collect();
    STANDARD.encode(bytes)
}

fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// The last index that touched each table.
#[derive(Debug, Default, Clone, Copy)]
struct Tables {
    nodes: u64,
    services: u64,
    checks: u64,
    kvs: u64,
    tombstones: u64,
    sessions: u64,
}

#[derive(Debug, Clone)]
struct NodeRecord {
    node: Node,
    services: BTreeMap<String, Service>,
    /// By their ids in lower case.
    checks: BTreeMap<String, CheckRecord>,
}

impl NodeRecord {
    /// A check; its id is looked up without regard to case.
    fn check(&self, id: &str) -> Option<&CheckRecord> {
        self.checks.get(&id.to_lowercase())
    }
}

#[derive(Debug, Clone)]
struct CheckRecord {
    check: HealthCheck,
    /// The last write, also one that changed nothing (Consul 1.8 wakes watches then).
    touched: u64,
}

#[derive(Debug, Clone)]
struct KeyRecord {
    value: Bytes,
    flags: u64,
    session: Option<String>,
    lock_index: u64,
    create_index: u64,
    modify_index: u64,
}

/// A session, and what its type does not keep.
#[derive(Debug, Clone)]
pub(super) struct SessionRecord {
    pub(super) session: Session,
    /// As it was written.
    pub(super) ttl: String,
    /// `None` where it was `null`.
    pub(super) node_checks: Option<Vec<String>>,
    pub(super) service_checks: Vec<String>,
    delete_keys: bool,
    expires: Option<Instant>,
}

/// The part of a [`State`] that transactions change.
#[derive(Debug, Clone)]
struct Contents {
    tables: Tables,
    nodes: BTreeMap<String, NodeRecord>,
    service_indexes: BTreeMap<String, u64>,
    node_indexes: BTreeMap<String, u64>,
    extinctions: (u64, u64),
    keys: BTreeMap<String, KeyRecord>,
    tombstones: BTreeMap<String, u64>,
    lock_delays: HashMap<String, Instant>,
    sessions: BTreeMap<String, SessionRecord>,
    queries: query::PreparedQueries,
    gateways: gateway::Gateways,
    coordinates: coordinate::Coordinates,
}

/// The state of a datacenter with one server.
#[derive(Debug)]
pub(super) struct State {
    pub(super) behaviour: Behaviour,
    index: u64,
    tables: Tables,
    nodes: BTreeMap<String, NodeRecord>,
    service_indexes: BTreeMap<String, u64>,
    node_indexes: BTreeMap<String, u64>,
    service_extinction: u64,
    node_extinction: u64,
    keys: BTreeMap<String, KeyRecord>,
    tombstones: BTreeMap<String, u64>,
    lock_delays: HashMap<String, Instant>,
    sessions: BTreeMap<String, SessionRecord>,
    acl: acl::Acl,
    events: event::Events,
    config: config::ConfigEntries,
    intentions: intention::Intentions,
    ca: connect_ca::ConnectCa,
    coordinates: coordinate::Coordinates,
    queries: query::PreparedQueries,
    gateways: gateway::Gateways,
    operator: operator::Operator,
    started: SystemTime,
    pub(super) agent: LocalAgent,
    /// Grows when the whole store is replaced: every blocked read answers then.
    pub(super) epoch: u64,
    pub(super) leader: bool,
    pub(super) leader_lost: Option<Instant>,
    random: fastrand::Rng,
}

impl State {
    pub(super) fn new(behaviour: Behaviour, seed: u64) -> Self {
        let mut state = Self {
            behaviour,
            // A real server has used some indexes up before it can be asked.
            index: 10,
            tables: Tables::default(),
            nodes: BTreeMap::new(),
            service_indexes: BTreeMap::new(),
            node_indexes: BTreeMap::new(),
            service_extinction: 0,
            node_extinction: 0,
            keys: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            lock_delays: HashMap::new(),
            sessions: BTreeMap::new(),
            acl: acl::Acl::default(),
            events: event::Events::default(),
            config: config::ConfigEntries::default(),
            intentions: intention::Intentions::default(),
            ca: connect_ca::ConnectCa::default(),
            coordinates: coordinate::Coordinates::default(),
            queries: query::PreparedQueries::default(),
            gateways: gateway::Gateways::default(),
            operator: operator::Operator::default(),
            started: crate::Clock::now(&crate::SystemClock),
            agent: LocalAgent::default(),
            epoch: 0,
            leader: true,
            leader_lost: None,
            random: fastrand::Rng::with_seed(seed),
        };
        state.boot();
        let domain = state.uuid();
        state.ca.set_trust_domain(domain);
        state
    }

    pub(super) fn is_1_8(&self) -> bool {
        self.behaviour == Behaviour::V1_8
    }

    /// The version that it gives itself.
    pub(super) fn version(&self) -> &'static str {
        if self.is_1_8() { "1.8.7" } else { "1.19.2" }
    }

    pub(super) fn last_index(&self) -> u64 {
        self.index
    }

    /// When it started, as answers show it.
    pub(super) fn started(&self) -> String {
        rfc3339(self.started)
    }

    /// Takes the next index, as every committed write does, also one that changes nothing.
    fn commit(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    pub(super) fn uuid(&mut self) -> String {
        let bits = self.random.u128(..);
        let hex = format!("{bits:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }

    /// A random share of a blocking read's wait, by which Consul spreads the herd.
    pub(super) fn wait_jitter(&mut self, wait: Duration) -> Duration {
        (wait / 16).mul_f64(self.random.f64())
    }

    /// Lets everything happen that was due by `now`; says whether anything did.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let mut happened = false;
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            self.expire_sessions(due);
            self.expire_checks(due);
            self.expire_tokens(due);
            self.renew_leaves(due);
            happened = true;
        }
        happened
    }

    /// When something happens by itself next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let sessions = self.sessions.values().filter_map(|record| record.expires).min();
        let others = [self.agent.next_due(), self.acl.next_due(), self.ca.next_due()];
        sessions.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Returns the tables that a transaction can change.
    fn contents(&self) -> Contents {
        Contents {
            tables: self.tables,
            nodes: self.nodes.clone(),
            service_indexes: self.service_indexes.clone(),
            node_indexes: self.node_indexes.clone(),
            extinctions: (self.service_extinction, self.node_extinction),
            keys: self.keys.clone(),
            tombstones: self.tombstones.clone(),
            lock_delays: self.lock_delays.clone(),
            sessions: self.sessions.clone(),
            queries: self.queries.clone(),
            gateways: self.gateways.clone(),
            coordinates: self.coordinates.clone(),
        }
    }

    fn put_back(&mut self, before: Contents) {
        self.tables = before.tables;
        self.nodes = before.nodes;
        self.service_indexes = before.service_indexes;
        self.node_indexes = before.node_indexes;
        (self.service_extinction, self.node_extinction) = before.extinctions;
        self.keys = before.keys;
        self.tombstones = before.tombstones;
        self.lock_delays = before.lock_delays;
        self.sessions = before.sessions;
        self.queries = before.queries;
        self.gateways = before.gateways;
        self.coordinates = before.coordinates;
    }

    /// Replaces the history by an older one with the same contents, as
    /// restoring a snapshot does: every index becomes smaller.
    pub(super) fn lower_indexes(&mut self) {
        let lower = |index: &mut u64| {
            if *index > 0 {
                *index = (*index / 2).max(1);
            }
        };
        let Tables { nodes, services, checks, kvs, tombstones, sessions } = &mut self.tables;
        for index in [nodes, services, checks, kvs, tombstones, sessions] {
            lower(index);
        }
        lower(&mut self.index);
        lower(&mut self.service_extinction);
        lower(&mut self.node_extinction);
        self.service_indexes.values_mut().for_each(lower);
        self.node_indexes.values_mut().for_each(lower);
        self.tombstones.values_mut().for_each(lower);
        for record in self.keys.values_mut() {
            lower(&mut record.create_index);
            lower(&mut record.modify_index);
        }
        for record in self.nodes.values_mut() {
            lower(&mut record.node.create_index);
            lower(&mut record.node.modify_index);
            for service in record.services.values_mut() {
                lower(&mut service.create_index);
                lower(&mut service.modify_index);
            }
            for record in record.checks.values_mut() {
                lower(&mut record.check.create_index);
                lower(&mut record.check.modify_index);
            }
        }
        self.lower_config(lower);
        self.lower_intentions(lower);
        self.lower_ca(lower);
        self.lower_coordinates(lower);
        self.lower_queries(lower);
        self.lower_gateways(lower);
        self.abandon();
    }

    /// Makes every blocked read answer.
    pub(super) fn abandon(&mut self) {
        self.epoch += 1;
    }
}
