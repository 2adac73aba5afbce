//! Tokens, policies, roles, auth methods and binding rules.

mod binding;
mod bodies;
mod method;
mod policy;
mod template;
mod token;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::SystemTime,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{Refused, Seen, State, content_hash, rfc3339};
use crate::{
    testing::{
        acl::{Authorizer, Rules},
        login::LoginVerifier,
    },
    types::{NodeIdentity, ServiceIdentity},
};

pub(in crate::testing) use bodies::{
    BindingBody, LoginBody, MethodBody, PolicyBody, RoleBody, TokenBody,
};
pub(in crate::testing) use template::{TEMPLATES, Template, TemplatedPolicy};
pub(in crate::testing) use token::TokenFilter;

const DATACENTER: &str = "dc1";
const MANAGEMENT: &str = "00000000-0000-0000-0000-000000000001";
const READ_ONLY: &str = "00000000-0000-0000-0000-000000000002";
const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";

/// The ACLs of a datacenter.
#[derive(Debug)]
pub(in crate::testing) struct Acl {
    enabled: bool,
    default_allow: bool,
    tokens: BTreeMap<String, Token>,
    policies: BTreeMap<String, Policy>,
    roles: BTreeMap<String, Role>,
    methods: BTreeMap<String, Method>,
    rules: BTreeMap<String, BindingRule>,
    indexes: Indexes,
    /// The index of the first token, once there is one.
    bootstrapped: Option<u64>,
    verifiers: Verifiers,
    /// The wall clock and the moment at which it was read.
    started: (SystemTime, Instant),
}

/// The judges of logins, by the kind of the auth method.
#[derive(Clone, Default)]
struct Verifiers(HashMap<String, Arc<dyn LoginVerifier>>);

impl fmt::Debug for Verifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The last index that touched each table.
#[derive(Debug, Default, Clone, Copy)]
struct Indexes {
    tokens: u64,
    policies: u64,
    roles: u64,
    methods: u64,
    rules: u64,
}

/// When an object was made and last changed.
#[derive(Debug, Default, Clone, Copy)]
struct Stamp {
    created: u64,
    modified: u64,
}

#[derive(Clone)]
struct Token {
    secret: String,
    description: String,
    policies: Vec<String>,
    roles: Vec<String>,
    service_identities: Vec<ServiceIdentity>,
    node_identities: Vec<NodeIdentity>,
    templated_policies: Vec<TemplatedPolicy>,
    local: bool,
    auth_method: String,
    created_at: SystemTime,
    /// When it ends, by the wall clock and by the runtime's.
    expires: Option<(SystemTime, Instant)>,
    stamp: Stamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("description", &self.description).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Policy {
    name: String,
    description: String,
    text: String,
    rules: Rules,
    datacenters: Vec<String>,
    stamp: Stamp,
}

#[derive(Debug, Clone)]
struct Role {
    name: String,
    description: String,
    policies: Vec<String>,
    service_identities: Vec<ServiceIdentity>,
    node_identities: Vec<NodeIdentity>,
    templated_policies: Vec<TemplatedPolicy>,
    stamp: Stamp,
}

#[derive(Debug, Clone)]
struct Method {
    body: MethodBody,
    stamp: Stamp,
}

#[derive(Debug, Clone)]
struct BindingRule {
    body: BindingBody,
    stamp: Stamp,
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
    fn wall(&self, now: Instant) -> SystemTime {
        self.started.0 + now.saturating_duration_since(self.started.1)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.tokens.values().filter_map(|token| token.expires).map(|(_, at)| at).min()
    }

    /// Collects the rules that a token gives through its policies, its roles and
    /// its identities.
    fn rights(&self, token: &Token) -> Vec<Rules> {
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

impl State {
    /// Switches ACLs on, with Consul's own policy and the anonymous token, and
    /// with a management token if its secret is given.
    pub(in crate::testing) fn enable_acls(&mut self, default_allow: bool, secret: Option<&str>) {
        self.acl.enabled = true;
        self.acl.default_allow = default_allow;
        let index = self.commit();
        let stamp = Stamp { created: index, modified: index };
        let text = policy::management_rules(self.is_1_8());
        let management = Policy {
            name: "global-management".to_owned(),
            description: if self.is_1_8() {
                "Builtin Policy that grants unlimited access".to_owned()
            } else {
                "A built-in policy that grants read and write access to all Consul features"
                    .to_owned()
            },
            rules: Rules::parse(&text).unwrap_or_default(),
            text,
            datacenters: Vec::new(),
            stamp,
        };
        self.acl.policies.insert(MANAGEMENT.to_owned(), management);
        if !self.is_1_8() {
            let text = policy::read_only_rules();
            let read_only = Policy {
                name: "builtin/global-read-only".to_owned(),
                description:
                    "A built-in policy that grants read-only access to all Consul features"
                        .to_owned(),
                rules: Rules::parse(&text).unwrap_or_default(),
                text,
                datacenters: Vec::new(),
                stamp,
            };
            self.acl.policies.insert(READ_ONLY.to_owned(), read_only);
        }
        self.acl.indexes.policies = index;
        let now = Instant::now();
        let plain = |description: &str, secret: &str| Token {
            secret: secret.to_owned(),
            description: description.to_owned(),
            policies: Vec::new(),
            roles: Vec::new(),
            service_identities: Vec::new(),
            node_identities: Vec::new(),
            templated_policies: Vec::new(),
            local: false,
            auth_method: String::new(),
            created_at: self.acl.wall(now),
            expires: None,
            stamp,
        };
        let anonymous = plain("Anonymous Token", "anonymous");
        let first = secret.map(|secret| Token {
            policies: vec![MANAGEMENT.to_owned()],
            ..plain(if self.is_1_8() { "Master Token" } else { "Initial Management Token" }, secret)
        });
        self.acl.tokens.insert(ANONYMOUS.to_owned(), anonymous);
        if let Some(first) = first {
            let accessor = self.uuid();
            self.acl.tokens.insert(accessor, first);
            self.acl.bootstrapped = Some(index);
        }
        self.acl.indexes.tokens = index;
    }

    /// The wall clock at a moment.
    pub(super) fn wall(&self, now: Instant) -> SystemTime {
        self.acl.wall(now)
    }

    pub(in crate::testing) fn acls_enabled(&self) -> bool {
        self.acl.enabled
    }

    pub(in crate::testing) fn acl_default_allow(&self) -> bool {
        self.acl.default_allow
    }

    pub(in crate::testing) fn set_login_verifier(
        &mut self,
        kind: &str,
        verifier: Arc<dyn LoginVerifier>,
    ) {
        self.acl.verifiers.0.insert(kind.to_owned(), verifier);
    }

    /// Returns the caller with this secret. An unknown secret is refused.
    pub(in crate::testing) fn authorizer(&self, secret: &str) -> Result<Authorizer, Refused> {
        let acl = &self.acl;
        if !acl.enabled {
            return Ok(Authorizer::off());
        }
        let anonymous = secret.is_empty() || secret == "anonymous";
        let found = if anonymous {
            acl.tokens.get_key_value(ANONYMOUS)
        } else {
            acl.tokens.iter().find(|(_, token)| token.secret == secret)
        };
        let Some((accessor, token)) = found else {
            return Err(Refused::new(403, "ACL not found"));
        };
        let (detailed, rules) = (!self.is_1_8(), acl.rights(token));
        Ok(Authorizer::new(accessor, anonymous, acl.default_allow, detailed, &rules))
    }

    pub(super) fn expire_tokens(&mut self, now: Instant) {
        let before = self.acl.tokens.len();
        self.acl.tokens.retain(|_, token| token.expires.is_none_or(|(_, at)| at > now));
        if self.acl.tokens.len() != before {
            self.acl.indexes.tokens = self.commit();
        }
    }

    /// The rule for names of policies.
    fn name_rule(&self) -> &'static str {
        if self.is_1_8() { NAME_RULE } else { NAME_RULE_NOW }
    }

    /// Returns the answer to an ACL read of something unknown.
    pub(in crate::testing) fn acl_missing(&self, what: &str) -> Refused {
        match (self.is_1_8(), what) {
            (true, "token" | "policy") => Refused::new(403, "ACL not found"),
            (false, "token") => Refused::new(403, "token does not exist: ACL not found"),
            (true, _) => Refused::new(404, ""),
            (false, _) => {
                Refused::new(404, format!("Requested {what} does not exist: ACL not found"))
            }
        }
    }

    /// Returns the answer to deleting something unknown: servers before 1.15 do not
    /// mind.
    fn acl_nothing_to_delete(&self, what: &str) -> Result<Value, Refused> {
        if self.is_1_8() {
            return Ok(Value::Bool(true));
        }
        Err(Refused::new(404, format!("Cannot find {what} to delete")))
    }

    /// Stamps an object that is made or changed; `table` is its table's index.
    fn stamp(&mut self, old: Option<Stamp>, table: fn(&mut Indexes) -> &mut u64) -> Stamp {
        let index = self.commit();
        *table(&mut self.acl.indexes) = index;
        Stamp { created: old.map_or(index, |old| old.created), modified: index }
    }
}

/// Returns the position of an ACL table's reads.
fn seen(index: u64) -> Seen {
    Seen::by_index(index)
}

/// Refuses what is no id.
fn check_id(what: &str, id: &str) -> Result<(), Refused> {
    if is_uuid(id) {
        return Ok(());
    }
    let problem = if id.len() == 36 { "Invalid UUID" } else { "UUID must be 36 characters" };
    Err(Refused::new(500, format!("failed acl {what} lookup: index error: {problem}")))
}

pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.chars().enumerate().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

/// A name of a policy, role or auth method.
fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A name of a service or node in an identity.
fn is_identity_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=256).contains(&name.len())
        && name.chars().all(|c| inner(c) || matches!(c, '-' | '_'))
        && name.starts_with(inner)
        && name.ends_with(inner)
}

/// The rule for names of policies in newer words.
const NAME_RULE_NOW: &str = "Only alphanumeric characters, a single '/', '-' and '_' are allowed";
const NAME_RULE: &str = "Only alphanumeric characters, '-' and '_' are allowed";
