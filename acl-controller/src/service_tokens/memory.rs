//! The knowledge that a controller keeps between passes to save requests. All of it may be lost.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    secret_store::SecretVersion, service_name::ServiceName, token_ids::Stage,
    undescribed::UndescribedTasks,
};

/// Largest number of passes for which a failing service is left alone.
const LONGEST_SKIP: u64 = 6;

/// Knowledge beside what each pass reads. All of it may be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Number of the current pass.
    pub(super) pass: u64,
    /// Accessor id of the clients' token.
    pub(super) client_accessor: Option<String>,
    /// Services that each running task, by ARN, has had so far.
    pub(super) services: HashMap<String, Vec<ServiceName>>,
    /// Secrets that were found to hold the ids of their service's token.
    pub(super) verified: HashMap<ServiceName, Verified>,
    /// Hash of each policy, by id, at which its rules were found to be right.
    pub(super) rules: HashMap<String, String>,
    /// Services that failed.
    pub(super) failing: BTreeMap<ServiceName, Failing>,
    /// Services with tasks and without a secret, which have been reported.
    pub(super) secretless: BTreeSet<ServiceName>,
    /// Tokens beside a service's own, with the tasks that ran when each was found.
    pub(super) surplus: HashMap<String, HashSet<String>>,
    pub(super) undescribed: UndescribedTasks,
    /// Service at which the next pass begins, because the last one did not reach it.
    pub(super) resume_at: Option<ServiceName>,
    /// Number of tasks that the last pass skipped.
    pub(super) skipped: usize,
}

/// Secret that holds the ids of its service's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) accessor: String,
    pub(super) version: SecretVersion,
    /// Stage of the token according to the secret.
    pub(super) stage: Stage,
}

/// Backoff of a failing service.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failing {
    times: u32,
    due: u64,
}

impl Memory {
    /// Returns `true` if a service is left alone in this pass because it failed a moment ago.
    pub(super) fn is_put_off(&self, service: &ServiceName) -> bool {
        self.failing.get(service).is_some_and(|failing| failing.due > self.pass)
    }

    /// Records a failure: each time the service is left alone for longer.
    pub(super) fn failed(&mut self, service: &ServiceName) {
        let pass = self.pass;
        let failing = self.failing.entry(service.clone()).or_default();
        // 1, 2, 4 passes, then the limit.
        let skip = 1u64.checked_shl(failing.times).unwrap_or(LONGEST_SKIP).min(LONGEST_SKIP);
        failing.times = failing.times.saturating_add(1);
        failing.due = pass.saturating_add(skip);
    }

    /// Records that a service is as it has to be.
    pub(super) fn succeeded(&mut self, service: &ServiceName, verified: Option<Verified>) {
        self.failing.remove(service);
        self.secretless.remove(service);
        match verified {
            Some(verified) => drop(self.verified.insert(service.clone(), verified)),
            None => drop(self.verified.remove(service)),
        }
    }

    /// Drops what is known about a service's secret.
    pub(super) fn forget(&mut self, service: &ServiceName) {
        self.verified.remove(service);
    }

    /// Drops everything about services that no longer exist.
    pub(super) fn keep(&mut self, is_known: impl Fn(&ServiceName) -> bool) {
        self.verified.retain(|service, _| is_known(service));
        self.failing.retain(|service, _| is_known(service));
        self.secretless.retain(|service| is_known(service));
    }
}
