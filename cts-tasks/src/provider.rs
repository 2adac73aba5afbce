//! Providers of the Terraform language, as the configuration has them.

use std::collections::BTreeMap;

use secrecy::SecretString;

use crate::{Literal, Place};

/// `terraform_provider "<name>" { … }`.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderBlock {
    /// The provider's local name.
    pub name: String,
    /// Tells instances of one provider apart.
    pub alias: Option<String>,
    /// Arguments without the meta arguments. They may hold secrets, and templates
    /// that the driver resolves (see `config::Dynamic`).
    pub arguments: BTreeMap<String, Literal>,
    /// Environment of the tool's process, for tasks that use this provider;
    /// values may be templates.
    pub task_env: BTreeMap<String, SecretString>,
    /// `auto_commit`, for providers with a handler that knows it.
    pub auto_commit: bool,
    /// Place at which the block begins.
    pub place: Option<Place>,
}

impl ProviderBlock {
    /// A block without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            alias: None,
            arguments: BTreeMap::new(),
            task_env: BTreeMap::new(),
            auto_commit: false,
            place: None,
        }
    }

    /// `name`, or `name.alias`.
    pub fn id(&self) -> String {
        match &self.alias {
            Some(alias) => format!("{}.{alias}", self.name),
            None => self.name.clone(),
        }
    }
}

impl std::fmt::Debug for ProviderBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderBlock")
            .field("id", &self.id())
            .field("arguments", &"[redacted]")
            .finish_non_exhaustive()
    }
}
