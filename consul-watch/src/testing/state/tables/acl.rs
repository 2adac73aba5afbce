//! Tokens, policies, roles, auth methods and binding rules as they are kept.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::SystemTime,
};

use tokio::time::Instant;

use super::{
    acl_bodies::{BindingBody, MethodBody},
    templated_policy::TemplatedPolicy,
};
use crate::{
    testing::{acl::Rules, login::LoginVerifier, state::names::DATACENTER},
    types::{NodeIdentity, ServiceIdentity},
};

/// The ACLs of a datacenter.
#[derive(Debug)]
pub(in crate::testing) struct Acl {
    pub(in crate::testing) enabled: bool,
    pub(in crate::testing) default_allow: bool,
    pub(in crate::testing) tokens: BTreeMap<String, Token>,
    pub(in crate::testing) policies: BTreeMap<String, Policy>,
    pub(in crate::testing) roles: BTreeMap<String, Role>,
    pub(in crate::testing) methods: BTreeMap<String, Method>,
    pub(in crate::testing) rules: BTreeMap<String, BindingRule>,
    pub(in crate::testing) indexes: Indexes,
    /// The index of the first token, once there is one.
    pub(in crate::testing) bootstrapped: Option<u64>,
    pub(in crate::testing) verifiers: Verifiers,
    /// The wall clock and the moment at which it was read.
    pub(in crate::testing) started: (SystemTime, Instant),
}

/// The judges of logins, by the kind of the auth method.
#[derive(Clone, Default)]
pub(in crate::testing) struct Verifiers(
    pub(in crate::testing) HashMap<String, Arc<dyn LoginVerifier>>,
);

impl fmt::Debug for Verifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The last index that touched each table.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::testing) struct Indexes {
    pub(in crate::testing) tokens: u64,
    pub(in crate::testing) policies: u64,
    pub(in crate::testing) roles: u64,
    pub(in crate::testing) methods: u64,
    pub(in crate::testing) rules: u64,
}

/// When an object was made and last changed.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::testing) struct Stamp {
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

#[derive(Clone)]
pub(in crate::testing) struct Token {
    pub(in crate::testing) secret: String,
    pub(in crate::testing) description: String,
    pub(in crate::testing) policies: Vec<String>,
    pub(in crate::testing) roles: Vec<String>,
    pub(in crate::testing) service_identities: Vec<ServiceIdentity>,
    pub(in crate::testing) node_identities: Vec<NodeIdentity>,
    pub(in crate::testing) templated_policies: Vec<TemplatedPolicy>,
    pub(in crate::testing) local: bool,
    pub(in crate::testing) auth_method: String,
    pub(in crate::testing) created_at: SystemTime,
    /// When it ends, by the wall clock and by the runtime's.
    pub(in crate::testing) expires: Option<(SystemTime, Instant)>,
    pub(in crate::testing) stamp: Stamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("description", &self.description).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct Policy {
    pub(in crate::testing) name: String,
    pub(in crate::testing) description: String,
    pub(in crate::testing) text: String,
    pub(in crate::testing) rules: Rules,
    pub(in crate::testing) datacenters: Vec<String>,
    pub(in crate::testing) stamp: Stamp,
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct Role {
    pub(in crate::testing) name: String,
    pub(in crate::testing) description: String,
    pub(in crate::testing) policies: Vec<String>,
    pub(in crate::testing) service_identities: Vec<ServiceIdentity>,
    pub(in crate::testing) node_identities: Vec<NodeIdentity>,
    pub(in crate::testing) templated_policies: Vec<TemplatedPolicy>,
    pub(in crate::testing) stamp: Stamp,
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct Method {
    pub(in crate::testing) body: MethodBody,
    pub(in crate::testing) stamp: Stamp,
}

#[derive(Debug, Clone)]
pub(in crate::testing) struct BindingRule {
    pub(in crate::testing) body: BindingBody,
    pub(in crate::testing) stamp: Stamp,
}

impl Default for Acl {
    fn default() -> Self {
        Self {
            enabled: false,
            default_allow: true,
            tokens: BTreeMap::new(),
            policies: BTreeMap::new(),
            roles: BTreeMap::new(),
            methods: BTreeMap::new(),
            rules: BTreeMap::new(),
            indexes: Indexes::default(),
            bootstrapped: None,
            verifiers: Verifiers::default(),
            started: (crate::Clock::now(&crate::SystemClock), Instant::now()),
        }
    }
}

impl Acl {
    pub(in crate::testing) fn wall(&self, now: Instant) -> SystemTime {
        self.started.0 + now.saturating_duration_since(self.started.1)
    }

    pub(in crate::testing) fn next_due(&self) -> Option<Instant> {
        self.tokens.values().filter_map(|token| token.expires).map(|(_, at)| at).min()
    }

    /// Collects the rules that a token gives through its policies, its roles and
    /// its identities.
    pub(in crate::testing) fn rights(&self, token: &Token) -> Vec<Rules> {
        let here = |datacenters: &[String]| {
            datacenters.is_empty() || datacenters.iter().any(|name| name == DATACENTER)
        };
        let mut found = Vec::new();
        let mut add = |policies: &[String],
                       services: &[ServiceIdentity],
                       nodes: &[NodeIdentity],
                       templates: &[TemplatedPolicy]| {
            let policies = policies.iter().filter_map(|id| self.policies.get(id));
            found.extend(
                policies.filter(|policy| here(&policy.datacenters)).map(|p| p.rules.clone()),
            );
            let services = services.iter().filter(|identity| here(&identity.datacenters));
            found.extend(services.map(|identity| Rules::of_service(&identity.service_name)));
            let nodes = nodes.iter().filter(|identity| identity.datacenter == DATACENTER);
            found.extend(nodes.map(|identity| Rules::of_node(&identity.node_name)));
            found.extend(templates.iter().filter_map(TemplatedPolicy::rules));
        };
        add(
            &token.policies,
            &token.service_identities,
            &token.node_identities,
            &token.templated_policies,
        );
        for role in token.roles.iter().filter_map(|id| self.roles.get(id)) {
            add(
                &role.policies,
                &role.service_identities,
                &role.node_identities,
                &role.templated_policies,
            );
        }
        found
    }
}
