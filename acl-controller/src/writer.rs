//! The only way by which reconcilers change anything, so that a dry run is safe and every change is
//! logged and counted once.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::{Result, telemetry};

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

/// Carries out changes and records them; in a dry run it only records them.
#[derive(Debug, Default)]
pub struct Writer {
    dry_run: bool,
    changes: Mutex<Vec<Change>>,
}

impl Writer {
    /// Creates a writer that carries changes out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a writer for a dry run.
    pub fn dry_run() -> Self {
        Self { dry_run: true, changes: Mutex::default() }
    }

    /// Returns `true` in a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the changes so far, made or planned, in this order.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change; `None` in a dry run, in which `call` is not awaited.
    ///
    /// A dry run records a change once, however often it comes: the first one changed nothing, so
    /// it is needed again.
    ///
    /// # Errors
    /// The error of `call`; the change is not recorded then.
    /// Those of `call`; the change is not kept then.
    pub async fn write<T>(
        &self,
        change: Change,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<Option<T>> {
        if self.dry_run {
            let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            if !changes.contains(&change) {
                tracing::info!(change = %change, "would change");
                changes.push(change);
            }
            return Ok(None);
        }
        let done = call.await?;
        tracing::info!(change = %change, "changed");
        telemetry::changed(&change);
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        Ok(Some(done))
    }
}
