//! A change of one object, as reports, logs and metrics name it.

use std::fmt;

/// Kind of change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Kind of object that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Object {
    /// An Enterprise partition.
    Partition,
    /// An Enterprise namespace.
    Namespace,
    /// An ACL policy.
    Policy,
    /// An ACL role.
    Role,
    /// An ACL auth method.
    AuthMethod,
    /// A binding rule.
    BindingRule,
    /// The value of a secret in the store.
    Secret,
    /// An ACL token.
    Token,
    /// A node of the catalog.
    Node,
    /// A service of the catalog.
    Service,
}

impl Object {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Namespace => "namespace",
            Self::Policy => "policy",
            Self::Role => "role",
            Self::AuthMethod => "auth-method",
            Self::BindingRule => "binding-rule",
            Self::Secret => "secret",
            Self::Token => "token",
            Self::Node => "node",
            Self::Service => "service",
        }
    }
}

/// Change that a controller made, or would make.
///
/// ```
/// # use acl_controller::{Action, Change, Object};
/// let change = Change::new(Action::Create, Object::Policy, "web-service");
/// assert_eq!(change.to_string(), "create policy web-service");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Change {
    /// Kind of change.
    pub action: Action,
    /// Kind of object.
    pub object: Object,
    /// Name of the object; for a token its purpose, with its accessor id. Never a secret.
    pub name: String,
}

impl Change {
    /// Creates a change of one object.
    pub fn new(action: Action, object: Object, name: impl Into<String>) -> Self {
        Self { action, object, name: name.into() }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.action.as_str(), self.object.as_str(), self.name)
    }
}
