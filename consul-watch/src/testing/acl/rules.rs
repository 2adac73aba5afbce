//! Consul's ACL rules, from HCL or JSON.

use serde_json::{Map, Value};

use super::hcl;

/// The resources that rules are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::testing) enum Resource {
    Acl,
    Agent,
    Event,
    Intention,
    Key,
    Keyring,
    Mesh,
    Node,
    Operator,
    Peering,
    Query,
    Service,
    Session,
}

impl Resource {
    /// As rules and refusals name it.
    pub(in crate::testing) fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Agent => "agent",
            Self::Event => "event",
            Self::Intention => "intention",
            Self::Key => "key",
            Self::Keyring => "keyring",
            Self::Mesh => "mesh",
            Self::Node => "node",
            Self::Operator => "operator",
            Self::Peering => "peering",
            Self::Query => "query",
            Self::Service => "service",
            Self::Session => "session",
        }
    }

    /// Returns the server's own type of such a rule, as errors show it.
    fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::Agent => ("AgentRule", "Node"),
            Self::Event => ("EventRule", "Event"),
            Self::Key => ("KeyRule", "Prefix"),
            Self::Query => ("PreparedQueryRule", "Prefix"),
            Self::Service => ("ServiceRule", "Name"),
            Self::Session => ("SessionRule", "Node"),
            _ => ("NodeRule", "Name"),
        }
    }
}

/// Rules about names, each with a form for one name and one for a prefix.
const NAMED: [Resource; 7] = [
    Resource::Agent,
    Resource::Event,
    Resource::Key,
    Resource::Node,
    Resource::Query,
    Resource::Service,
    Resource::Session,
];

/// Rules about everything of a kind.
const PLAIN: [Resource; 5] =
    [Resource::Acl, Resource::Keyring, Resource::Mesh, Resource::Operator, Resource::Peering];

/// A level of access; each includes the ones before, and `Deny` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::testing) enum Access {
    Deny,
    Read,
    List,
    Write,
}

impl Access {
    fn read(word: &str) -> Option<Self> {
        match word {
            "deny" => Some(Self::Deny),
            "read" => Some(Self::Read),
            "list" => Some(Self::List),
            "write" => Some(Self::Write),
            _ => None,
        }
    }

    pub(in crate::testing) fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
        }
    }
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) resource: Resource,
    /// Empty for rules about everything of a kind.
    pub(super) name: String,
    pub(super) prefix: bool,
    pub(super) access: Access,
}

/// The rules of one policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::testing) struct Rules(pub(super) Vec<Rule>);

impl Rules {
    /// Reads rules; blocks of unknown kinds are ignored, as Consul ignores them.
    pub(in crate::testing) fn parse(text: &str) -> Result<Self, String> {
        let document =
            hcl::read(text).map_err(|error| format!("Failed to parse ACL rules: {error}"))?;
        let mut rules = Vec::new();
        for resource in PLAIN {
            let Some(value) = document.get(resource.name()) else { continue };
            let word = value.as_str().unwrap_or_default();
            if word.is_empty() {
                continue;
            }
            let access = Access::read(word)
                .filter(|access| *access != Access::List)
                .ok_or_else(|| format!("Invalid {} policy: {word:?}", resource.name()))?;
            rules.push(Rule { resource, name: String::new(), prefix: true, access });
        }
        for resource in NAMED {
            for prefix in [false, true] {
                read_named(&document, resource, prefix, &mut rules)?;
            }
        }
        Ok(Self(rules))
    }

    /// Returns the rules that a service's identity gives.
    pub(in crate::testing) fn of_service(name: &str) -> Self {
        let rule = |resource, name: String, prefix, access| Rule { resource, name, prefix, access };
        let own = |name: String| {
            [
                rule(Resource::Service, name.clone(), false, Access::Write),
                rule(Resource::Intention, name, false, Access::Read),
            ]
        };
        let mut rules = Self::finder();
        rules.0.extend(own(name.to_owned()));
        rules.0.extend(own(format!("{name}-sidecar-proxy")));
        rules.0.push(rule(Resource::Node, String::new(), true, Access::Read));
        rules
    }

    /// Returns the rules that a node's identity gives.
    pub(in crate::testing) fn of_node(name: &str) -> Self {
        let mut rules = Self::finder();
        rules.0.push(Rule {
            resource: Resource::Node,
            name: name.to_owned(),
            prefix: false,
            access: Access::Write,
        });
        rules
    }

    /// Reads all services.
    fn finder() -> Self {
        let rule =
            |resource| Rule { resource, name: String::new(), prefix: true, access: Access::Read };
        Self(vec![rule(Resource::Service), rule(Resource::Intention)])
    }
}

fn read_named(
    document: &Map<String, Value>,
    resource: Resource,
    prefix: bool,
    rules: &mut Vec<Rule>,
) -> Result<(), String> {
    let kind = format!("{}{}", resource.name(), if prefix { "_prefix" } else { "" });
    for block in document.get(&kind).into_iter().flat_map(objects) {
        for (name, body) in block {
            for body in objects(body) {
                let word = |member: &str| body.get(member).and_then(Value::as_str).unwrap_or("");
                let (policy, intentions) = (word("policy"), word("intentions"));
                let refused = |what: &str| {
                    let (rule, field) = resource.shown();
                    let more = match resource {
                        Resource::Service => format!(
                            ", Intentions:{intentions:?}, EnterpriseRule:acl.EnterpriseRule{{}}"
                        ),
                        Resource::Key | Resource::Node => {
                            ", EnterpriseRule:acl.EnterpriseRule{}".to_owned()
                        }
                        _ => String::new(),
                    };
                    format!(
                        "Invalid {what} policy: &acl.{rule}{{{field}:{name:?}, Policy:{policy:?}{more}}}"
                    )
                };
                let access = Access::read(policy)
                    .filter(|access| *access != Access::List || resource == Resource::Key)
                    .ok_or_else(|| refused(&kind))?;
                let rule = |resource, access| Rule { resource, name: name.clone(), prefix, access };
                rules.push(rule(resource, access));
                if resource == Resource::Service {
                    let access = match (intentions, access) {
                        ("", Access::Deny) => Access::Deny,
                        ("", _) => Access::Read,
                        (word, _) => Access::read(word)
                            .filter(|access| *access != Access::List)
                            .ok_or_else(|| refused(&format!("{kind} intentions")))?,
                    };
                    rules.push(rule(Resource::Intention, access));
                }
            }
        }
    }
    Ok(())
}

/// The objects of a value: itself, or the elements of a list.
fn objects(value: &Value) -> Vec<&Map<String, Value>> {
    match value {
        Value::Object(object) => vec![object],
        Value::Array(list) => list.iter().flat_map(objects).collect(),
        _ => Vec::new(),
    }
}
