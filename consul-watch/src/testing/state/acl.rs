//! Tokens, policies, roles, auth methods and binding rules.

mod binding;
mod method;
mod policy;
mod token;

use std::{sync::Arc, time::SystemTime};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    Refused, State,
    names::{ANONYMOUS, MANAGEMENT, NAME_RULE, NAME_RULE_NOW, READ_ONLY},
    tables::{Indexes, Policy, Stamp, Token},
};
use crate::testing::{
    acl::{Authorizer, Rules},
    login::LoginVerifier,
};

pub(in crate::testing) use token::TokenFilter;

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
