//! Verdicts of the double's ACLs: what the rules of a token's policies allow together.

use std::collections::BTreeMap;

use super::{Access, Resource, Rules};
use crate::testing::refused::Refused;

/// The permissions of a caller, with its accessor for messages.
#[derive(Debug, Clone)]
pub(in crate::testing) struct Authorizer {
    /// Accessor of the token.
    accessor: String,
    holder: Holder,
    default_allow: bool,
    /// Refusals say which right is missing (Consul 1.15).
    detailed: bool,
    rules: BTreeMap<Resource, Named>,
}

/// The kind of a caller's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// ACLs are off: everything is allowed.
    Anybody,
    /// Without a token.
    Anonymous,
    Token,
}

/// The rules about one kind of names.
#[derive(Debug, Clone, Default)]
struct Named {
    exact: BTreeMap<String, Access>,
    prefix: BTreeMap<String, Access>,
}

impl Named {
    /// The rule that decides about a name: its own, else that of the longest prefix.
    fn find(&self, name: &str) -> Option<Access> {
        self.exact.get(name).copied().or_else(|| self.find_prefix(name))
    }

    fn find_prefix(&self, name: &str) -> Option<Access> {
        let fitting = self.prefix.iter().filter(|(prefix, _)| name.starts_with(prefix.as_str()));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, access)| *access)
    }

    fn all(&self) -> impl Iterator<Item = (&String, Access)> {
        self.exact.iter().chain(&self.prefix).map(|(name, access)| (name, *access))
    }
}

/// Of two policies' rules about the same name the one that forbids holds, else the wider one.
fn stronger(a: Access, b: Access) -> Access {
    if a == Access::Deny || b == Access::Deny { Access::Deny } else { a.max(b) }
}

impl Authorizer {
    /// Without ACLs everything is allowed.
    pub(in crate::testing) fn off() -> Self {
        Self {
            accessor: String::new(),
            holder: Holder::Anybody,
            default_allow: true,
            detailed: false,
            rules: BTreeMap::new(),
        }
    }

    pub(in crate::testing) fn new(
        accessor: &str,
        anonymous: bool,
        default_allow: bool,
        detailed: bool,
        policies: &[Rules],
    ) -> Self {
        let mut rules = BTreeMap::<Resource, Named>::new();
        for rule in policies.iter().flat_map(|policy| &policy.0) {
            let named = rules.entry(rule.resource).or_default();
            let names = if rule.prefix { &mut named.prefix } else { &mut named.exact };
            names
                .entry(rule.name.clone())
                .and_modify(|access| *access = stronger(*access, rule.access))
                .or_insert(rule.access);
        }
        let holder = if anonymous { Holder::Anonymous } else { Holder::Token };
        Self { accessor: accessor.to_owned(), holder, default_allow, detailed, rules }
    }

    /// Returns `true` if ACLs are on.
    pub(in crate::testing) fn enforces(&self) -> bool {
        self.holder != Holder::Anybody
    }

    /// Returns `true` if answers say that something was left out.
    pub(in crate::testing) fn says_filtered(&self) -> bool {
        self.detailed && self.holder == Holder::Token
    }

    /// Returns `true` if this may be done to a name; the empty name for what has none.
    pub(in crate::testing) fn allows(
        &self,
        resource: Resource,
        name: &str,
        wanted: Access,
    ) -> bool {
        if !self.enforces() {
            return true;
        }
        let found = self.rules.get(&resource).and_then(|named| {
            if resource == Resource::Intention && name == "*" {
                return all_intentions(named, wanted);
            }
            named.find(name)
        });
        match (resource, found) {
            (_, Some(access)) => access >= wanted,
            // What no rule of its own covers is an operator's.
            (Resource::Mesh | Resource::Peering, None) => {
                self.allows(Resource::Operator, "", wanted)
            }
            // The default never gives rights over ACLs.
            (Resource::Acl, None) => false,
            (_, None) => self.default_allow,
        }
    }

    /// Returns `true` if all keys under a prefix may be deleted.
    pub(in crate::testing) fn allows_tree(&self, prefix: &str) -> bool {
        if !self.enforces() {
            return true;
        }
        let Some(named) = self.rules.get(&Resource::Key) else { return self.default_allow };
        let above = named.find_prefix(prefix).map_or(self.default_allow, |a| a == Access::Write);
        above
            && named
                .all()
                .filter(|(name, _)| name.starts_with(prefix))
                .all(|(_, access)| access == Access::Write)
    }

    /// Refuses what is not allowed.
    pub(in crate::testing) fn require(
        &self,
        resource: Resource,
        name: &str,
        wanted: Access,
    ) -> Result<(), Refused> {
        if self.allows(resource, name, wanted) {
            Ok(())
        } else {
            Err(self.denied(resource, name, wanted))
        }
    }

    /// As [`Self::require`], with the words that the agent uses of old.
    pub(in crate::testing) fn require_of_agent(
        &self,
        resource: Resource,
        name: &str,
        wanted: Access,
    ) -> Result<(), Refused> {
        self.require(resource, name, wanted).map_err(|refused| {
            if self.detailed {
                return refused;
            }
            let (kind, access) = (resource.name(), wanted.name());
            Refused::new(403, format!("Permission denied: Missing {kind}:{access} on {name}"))
        })
    }

    /// Refuses a recursive delete.
    pub(in crate::testing) fn require_tree(&self, prefix: &str) -> Result<(), Refused> {
        if self.allows_tree(prefix) {
            Ok(())
        } else {
            Err(self.denied(Resource::Key, prefix, Access::Write))
        }
    }

    pub(in crate::testing) fn denied(
        &self,
        resource: Resource,
        name: &str,
        wanted: Access,
    ) -> Refused {
        if !self.detailed {
            return Refused::new(403, "Permission denied");
        }
        let anonymous = self.holder == Holder::Anonymous;
        let who = if anonymous {
            "anonymous token".to_owned()
        } else {
            format!("token with AccessorID '{}'", self.accessor)
        };
        let on = if name.is_empty() { String::new() } else { format!(" on {name:?}") };
        let hint = if anonymous {
            ". The anonymous token is used implicitly when a request does not specify a token."
        } else {
            ""
        };
        let (kind, access) = (resource.name(), wanted.name());
        Refused::new(
            403,
            format!("Permission denied: {who} lacks permission '{kind}:{access}'{on}{hint}"),
        )
    }
}

/// Decides on the intentions of every service: reading needs one rule that allows
/// it, writing no rule that forbids it.
fn all_intentions(named: &Named, wanted: Access) -> Option<Access> {
    let catch_all = named.prefix.get("").copied();
    if wanted == Access::Write {
        let weakest = named.all().map(|(_, access)| access).min();
        return match (catch_all, weakest) {
            (Some(_), Some(weakest)) => Some(weakest),
            (None, Some(weakest)) if weakest < wanted => Some(weakest),
            _ => None,
        };
    }
    match named.all().map(|(_, access)| access).max() {
        Some(best) if best >= wanted => Some(best),
        _ => catch_all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(rules: &[&str]) -> Authorizer {
        let rules: Vec<Rules> = rules.iter().map(|text| Rules::parse(text).unwrap()).collect();
        Authorizer::new("a", false, false, true, &rules)
    }

    #[test]
    fn the_longest_prefix_and_the_exact_name_decide() {
        let who = token(&[
            r#"key_prefix "" { policy = "read" } key_prefix "a/" { policy = "write" }"#,
            r#"key_prefix "a/b/" { policy = "deny" } key "a/b/c" { policy = "write" }"#,
        ]);
        let may = |name: &str, access| who.allows(Resource::Key, name, access);
        assert!(may("x", Access::Read) && !may("x", Access::Write));
        assert!(may("a/x", Access::Write) && !may("a/b/x", Access::Read));
        assert!(may("a/b/c", Access::Write) && !may("a/b/cc", Access::Read));
        assert!(!who.allows_tree("a/") && who.allows_tree("a/c") && !who.allows_tree("x"));
        assert!(!who.allows(Resource::Service, "web", Access::Read));
    }

    #[test]
    fn policies_about_one_name_add_up_and_denying_wins() {
        let who = token(&[
            r#"service "web" { policy = "read" } node "n" { policy = "deny" }"#,
            r#"service "web" { policy = "write" } node "n" { policy = "write" } operator = "read""#,
        ]);
        assert!(who.allows(Resource::Service, "web", Access::Write));
        assert!(!who.allows(Resource::Node, "n", Access::Read));
        assert!(who.allows(Resource::Intention, "web", Access::Read));
        assert!(!who.allows(Resource::Intention, "web", Access::Write));
        assert!(who.allows(Resource::Intention, "*", Access::Read));
        assert!(!who.allows(Resource::Intention, "*", Access::Write));
        assert!(who.allows(Resource::Mesh, "", Access::Read));
        let refused = who.require(Resource::Node, "n", Access::Write).unwrap_err();
        assert_eq!(
            refused.text,
            "Permission denied: token with AccessorID 'a' lacks permission 'node:write' on \"n\""
        );
    }

    #[test]
    fn what_allows_by_default_never_gives_acls() {
        let who = Authorizer::new("a", true, true, true, &[]);
        assert!(who.allows(Resource::Key, "x", Access::Write) && who.allows_tree(""));
        let refused = who.require(Resource::Acl, "", Access::Read).unwrap_err();
        assert!(
            refused.text.starts_with(
                "Permission denied: anonymous token lacks permission 'acl:read'. The anonymous"
            ),
            "{}",
            refused.text
        );
    }
}
