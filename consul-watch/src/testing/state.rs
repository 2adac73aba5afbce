//! What a Consul server and its local agent keep, with Consul's rules for indexes.

mod acl;
mod agent;
mod catalog;
mod chain;
mod config;
mod connect_ca;
mod coordinate;
mod event;
mod format;
mod gateway;
mod intention;
mod kv;
mod names;
mod operator;
mod query;
mod seen;
mod session;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod txn;

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

pub(super) use super::refused::Refused;
pub(super) use acl::TokenFilter;
pub(super) use agent::{CheckUpdate, duration};
pub(super) use catalog::Checks;
pub(super) use chain::ChainOverride;
pub(super) use config::NewEntry;
pub(super) use connect_ca::NewCaConfiguration;
pub(super) use event::EventTarget;
pub(super) use format::fingerprint;
pub(super) use intention::Verdict;
pub(super) use kv::KvCondition;
pub(super) use names::NODE;
pub(super) use query::Execution;
pub(super) use seen::Seen;
pub(super) use session::NewSession;
pub use store::Behaviour;
pub(super) use store::State;
pub(super) use tables::{
    AutopilotSettings, BindingBody, IntentionBody, LocalAgent, LoginBody, MethodBody, PolicyBody,
    QueryBody, RoleBody, SessionRecord, TEMPLATES, Template, TokenBody,
};
pub(super) use txn::{TxnFound, TxnStep};

use tables::{
    Acl, ConfigEntries, ConnectCa, Coordinates, Events, Gateways, Intentions, Operator,
    PreparedQueries, Tables,
};

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
            acl: Acl::default(),
            events: Events::default(),
            config: ConfigEntries::default(),
            intentions: Intentions::default(),
            ca: ConnectCa::default(),
            coordinates: Coordinates::default(),
            queries: PreparedQueries::default(),
            gateways: Gateways::default(),
            operator: Operator::default(),
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
}
