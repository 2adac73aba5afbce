//! `State`: everything that one server and its agent keep, with the index of the last write.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    format::rfc3339,
    tables::{
        Acl, ConfigEntries, ConnectCa, Contents, Coordinates, Events, Gateways, Intentions,
        KeyRecord, LocalAgent, NodeRecord, Operator, PreparedQueries, SessionRecord, Tables,
    },
};

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

/// The state of a datacenter with one server.
#[derive(Debug)]
pub(in crate::testing) struct State {
    pub(in crate::testing) behaviour: Behaviour,
    pub(in crate::testing) index: u64,
    pub(in crate::testing) tables: Tables,
    pub(in crate::testing) nodes: BTreeMap<String, NodeRecord>,
    pub(in crate::testing) service_indexes: BTreeMap<String, u64>,
    pub(in crate::testing) node_indexes: BTreeMap<String, u64>,
    pub(in crate::testing) service_extinction: u64,
    pub(in crate::testing) node_extinction: u64,
    pub(in crate::testing) keys: BTreeMap<String, KeyRecord>,
    pub(in crate::testing) tombstones: BTreeMap<String, u64>,
    pub(in crate::testing) lock_delays: HashMap<String, Instant>,
    pub(in crate::testing) sessions: BTreeMap<String, SessionRecord>,
    pub(in crate::testing) acl: Acl,
    pub(in crate::testing) events: Events,
    pub(in crate::testing) config: ConfigEntries,
    pub(in crate::testing) intentions: Intentions,
    pub(in crate::testing) ca: ConnectCa,
    pub(in crate::testing) coordinates: Coordinates,
    pub(in crate::testing) queries: PreparedQueries,
    pub(in crate::testing) gateways: Gateways,
    pub(in crate::testing) operator: Operator,
    pub(in crate::testing) started: SystemTime,
    pub(in crate::testing) agent: LocalAgent,
    /// Grows when the whole store is replaced: every blocked read answers then.
    pub(in crate::testing) epoch: u64,
    pub(in crate::testing) leader: bool,
    pub(in crate::testing) leader_lost: Option<Instant>,
    pub(in crate::testing) random: fastrand::Rng,
}

impl State {
    pub(in crate::testing) fn is_1_8(&self) -> bool {
        self.behaviour == Behaviour::V1_8
    }

    /// The version that it gives itself.
    pub(in crate::testing) fn version(&self) -> &'static str {
        if self.is_1_8() { "1.8.7" } else { "1.19.2" }
    }

    pub(in crate::testing) fn last_index(&self) -> u64 {
        self.index
    }

    /// When it started, as answers show it.
    pub(in crate::testing) fn started(&self) -> String {
        rfc3339(self.started)
    }

    /// Takes the next index, as every committed write does, also one that changes nothing.
    pub(in crate::testing) fn commit(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    pub(in crate::testing) fn uuid(&mut self) -> String {
        let bits = self.random.u128(..);
        let hex = format!("{bits:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }

    /// A random share of a blocking read's wait, by which Consul spreads the herd.
    pub(in crate::testing) fn wait_jitter(&mut self, wait: Duration) -> Duration {
        (wait / 16).mul_f64(self.random.f64())
    }

    /// Returns the tables that a transaction can change.
    pub(in crate::testing) fn contents(&self) -> Contents {
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

    pub(in crate::testing) fn put_back(&mut self, before: Contents) {
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

    /// Makes every blocked read answer.
    pub(in crate::testing) fn abandon(&mut self) {
        self.epoch += 1;
    }
}
