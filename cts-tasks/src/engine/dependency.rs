//! One read of Consul that a task needs, and its answer.

use std::{collections::BTreeMap, fmt, sync::Arc};

use consul_watch::types::{KvPair, ServiceEntry};

/// A dependency on Consul. Tasks with the same dependency share a watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Dependency {
    /// The instances of one service; with `passing` only those that are healthy.
    Instances { name: String, datacenter: String, namespace: String, filter: String, passing: bool },
    /// All service names with their tags.
    Names { datacenter: String, namespace: String, node_meta: BTreeMap<String, String> },
    /// A key of the KV store.
    Key { path: String, datacenter: String, namespace: String },
    /// All keys with a prefix.
    Prefix { path: String, datacenter: String, namespace: String },
}

/// Consul's last answer to a [`Dependency`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DependencyValue {
    Instances(Arc<Vec<ServiceEntry>>),
    Names(Arc<BTreeMap<String, Vec<String>>>),
    Key(Arc<Option<KvPair>>),
    Prefix(Arc<Vec<KvPair>>),
}

impl Dependency {
    /// Returns `true` if both may be about services of the same datacenter and
    /// namespace; an empty one is the agent's own, whose name is not known here.
    pub(crate) fn may_share_services_with(&self, other: &Self) -> bool {
        let alike = |one: &str, other: &str| one == other || one.is_empty() || other.is_empty();
        let ((datacenter, namespace), (other_datacenter, other_namespace)) =
            (self.location(), other.location());
        alike(datacenter, other_datacenter) && alike(namespace, other_namespace)
    }

    fn location(&self) -> (&str, &str) {
        match self {
            Self::Instances { datacenter, namespace, .. }
            | Self::Names { datacenter, namespace, .. }
            | Self::Key { datacenter, namespace, .. }
            | Self::Prefix { datacenter, namespace, .. } => (datacenter, namespace),
        }
    }
}

/// As upstream's logs and errors name it.
impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instances { name, datacenter, namespace, filter, passing } => {
                let mut options = Vec::new();
                if *passing {
                    options.push("passing".to_owned());
                }
                if !namespace.is_empty() {
                    options.push(format!("ns={namespace}"));
                }
                if !filter.is_empty() {
                    options.push(format!("filter={filter}"));
                }
                let datacenter = at(datacenter);
                let options = if options.is_empty() {
                    String::new()
                } else {
                    format!("|{}", options.join("&"))
                };
                write!(f, "health.service({name}{datacenter}{options})")
            }
            Self::Names { datacenter, namespace, node_meta } => {
                let mut options: Vec<String> = node_meta
                    .iter()
                    .map(|(key, value)| format!("node-meta={key}:{value}"))
                    .collect();
                if !namespace.is_empty() {
                    options.push(format!("ns={namespace}"));
                }
                write!(f, "catalog.services({}{})", at(datacenter), suffix(&options))
            }
            Self::Key { path, datacenter, namespace } => {
                write!(f, "kv.exists.get({path}{}{})", at(datacenter), in_namespace(namespace))
            }
            Self::Prefix { path, datacenter, namespace } => {
                write!(f, "kv.list({path}{}{})", at(datacenter), in_namespace(namespace))
            }
        }
    }
}

fn at(datacenter: &str) -> String {
    if datacenter.is_empty() { String::new() } else { format!("@{datacenter}") }
}

fn in_namespace(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("?ns={namespace}") }
}

fn suffix(options: &[String]) -> String {
    if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) }
}
