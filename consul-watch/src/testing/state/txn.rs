//! Transactions: all steps at one index, or none of them.

mod catalog;
mod kv;

use serde::Deserialize;
use tokio::time::Instant;

use super::{Refused, State};
use crate::{
    testing::acl::{Access, Authorizer, Resource},
    types::{HealthCheck, KvPair, Node, Service},
};
pub(super) use catalog::nameless;
use catalog::{CheckStep, NodeStep, ServiceStep};
use kv::KvStep;

/// A step of a transaction, as it comes over the wire. Consul carries out the
/// first of its parts, and takes one without any for nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct TxnStep {
    #[serde(rename = "KV")]
    kv: Option<KvStep>,
    node: Option<NodeStep>,
    service: Option<ServiceStep>,
    check: Option<CheckStep>,
}

/// The result of a step: what it has read or written.
#[derive(Debug)]
pub(in crate::testing) enum TxnFound {
    Kv(KvPair),
    Node(Node),
    Service(Box<Service>),
    Check(Box<HealthCheck>),
}

impl TxnFound {
    /// Returns `true` if the token may see it.
    pub(in crate::testing) fn is_seen_by(&self, who: &Authorizer) -> bool {
        let (resource, name) = match self {
            Self::Kv(pair) => (Resource::Key, &pair.key),
            Self::Node(node) => (Resource::Node, &node.name),
            Self::Service(service) => (Resource::Service, &service.name),
            Self::Check(check) if check.service_id.is_empty() => (Resource::Node, &check.node),
            Self::Check(check) => (Resource::Service, &check.service_name),
        };
        who.allows(resource, name, Access::Read)
    }
}

impl TxnStep {
    /// `true` for a step that only reads, by its verb.
    pub(in crate::testing) fn is_read(&self) -> bool {
        match self {
            Self { kv: Some(step), .. } => !step.writes(),
            Self { node: Some(step), .. } => step.is_read(),
            Self { service: Some(step), .. } => step.is_read(),
            Self { check: Some(step), .. } => step.is_read(),
            Self { .. } => true,
        }
    }

    /// Refuses what makes no sense, and what the token may not do. Reads are
    /// not refused: their results are left out.
    pub(in crate::testing) fn validate(&self, who: &Authorizer, old: bool) -> Result<(), Refused> {
        match self {
            Self { kv: Some(step), .. } => step.validate(who),
            Self { node: Some(step), .. } => step.validate(who),
            Self { service: Some(step), .. } => step.validate(who, old),
            Self { check: Some(step), .. } => step.validate(who),
            Self { .. } => Ok(()),
        }
    }
}

impl State {
    /// Most steps that a transaction may have.
    pub(in crate::testing) fn txn_limit(&self) -> usize {
        if self.is_1_8() { 64 } else { 128 }
    }

    /// Carries out all steps at one index, or none of them.
    pub(in crate::testing) fn transact(
        &mut self,
        steps: &[TxnStep],
        now: Instant,
    ) -> Result<Vec<TxnFound>, Vec<(usize, String)>> {
        let before = self.contents();
        let index = self.index;
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            // Every step takes the same index.
            self.index = index;
            match self.step(step, now) {
                Ok(mut objects) => found.append(&mut objects),
                Err(what) => failed.push((at, what)),
            }
        }
        self.index = index + 1;
        if failed.is_empty() {
            return Ok(found);
        }
        self.put_back(before);
        Err(failed)
    }

    fn step(&mut self, step: &TxnStep, now: Instant) -> Result<Vec<TxnFound>, String> {
        let one = |found: Option<TxnFound>| found.into_iter().collect();
        match step {
            TxnStep { kv: Some(step), .. } => {
                self.kv_step(step, now).map(|pairs| pairs.into_iter().map(TxnFound::Kv).collect())
            }
            TxnStep { node: Some(step), .. } => {
                self.node_step(step, now).map(|node| one(node.map(TxnFound::Node)))
            }
            TxnStep { service: Some(step), .. } => self
                .service_step(step, now)
                .map(|service| one(service.map(|service| TxnFound::Service(Box::new(service))))),
            TxnStep { check: Some(step), .. } => self
                .check_step(step, now)
                .map(|check| one(check.map(|check| TxnFound::Check(Box::new(check))))),
            TxnStep { .. } => Ok(Vec::new()),
        }
    }
}
