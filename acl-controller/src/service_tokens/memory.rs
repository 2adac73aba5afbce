use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    doubts::Doubts, secret_store::SecretVersion, service_name::ServiceName, token_ids::Stage,
};

/// A service that goes on failing is tried again after at most so many passes.
const LONGEST_SKIP: u64 = 6;

/// What a controller knows besides what it reads in each pass. It may all be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Number of the current pass.
    pub(super) pass: u64,
    /// The token of the clients.
    pub(super) client_accessor: Option<String>,
    /// The services that each running task, by ARN, had so far.
    pub(super) services: HashMap<String, Vec<ServiceName>>,
    /// Secrets that were found to hold the ids of their service's token.
    pub(super) verified: HashMap<ServiceName, Verified>,
    /// The hash of each policy, by id, with which its rules were found to be right.
    pub(super) rules: HashMap<String, String>,
    /// Services that failed.
    pub(super) failing: BTreeMap<ServiceName, Failing>,
    /// Services with tasks and without a secret, which have been reported.
    pub(super) secretless: BTreeSet<ServiceName>,
    /// Tokens beside a service's own, with the tasks that ran when each was found.
    pub(super) surplus: HashMap<String, HashSet<String>>,
    pub(super) doubts: Doubts,
    /// Where the next pass begins, because the last one did not get there.
    pub(super) resume_at: Option<ServiceName>,
    /// How many tasks were passed over last time.
    pub(super) skipped: usize,
}

/// A secret that holds the ids of its service's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) accessor: String,
    pub(super) version: SecretVersion,
    /// Stage of the token, as the secret has it.
    pub(super) stage: Stage,
}

/// A service that failed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failing {
    times: u32,
    due: u64,
}

impl Memory {
    /// Whether a service is to be left alone in this pass because it failed a moment ago.
    pub(super) fn is_put_off(&self, service: &ServiceName) -> bool {
        self.failing.get(service).is_some_and(|failing| failing.due > self.pass)
    }

    /// Notes that a service failed: each time it is left alone for longer.
    pub(super) fn failed(&mut self, service: &ServiceName) {
        let pass = self.pass;
        let failing = self.failing.entry(service.clone()).or_default();
        let skip = 1u64.checked_shl(failing.times).unwrap_or(LONGEST_SKIP).min(LONGEST_SKIP);
        failing.times = failing.times.saturating_add(1);
        failing.due = pass.saturating_add(skip);
    }

    /// Notes that a service is as it has to be.
    pub(super) fn succeeded(&mut self, service: &ServiceName, verified: Option<Verified>) {
        self.failing.remove(service);
        self.secretless.remove(service);
        match verified {
            Some(verified) => drop(self.verified.insert(service.clone(), verified)),
            None => drop(self.verified.remove(service)),
        }
    }

    /// Forgets what was found right about a service.
    pub(super) fn forget(&mut self, service: &ServiceName) {
        self.verified.remove(service);
    }

    /// Forgets what is not there any more.
    pub(super) fn keep(&mut self, is_known: impl Fn(&ServiceName) -> bool) {
        self.verified.retain(|service, _| is_known(service));
        self.failing.retain(|service, _| is_known(service));
        self.secretless.retain(|service| is_known(service));
    }
}
