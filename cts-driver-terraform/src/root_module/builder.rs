//! The builder of a root module.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use cts_tasks::{Literal, ProviderBlock, Task};

use super::{REQUIRED_VERSION, RootModule};
use crate::{Backend, Result, provider::Provider, version::Version};

/// Collects what a [`RootModule`] is made from.
#[derive(Debug)]
#[must_use]
pub struct RootModuleBuilder {
    root: RootModule,
}

impl RootModuleBuilder {
    pub(crate) fn new(task: Arc<Task>) -> Self {
        let root = RootModule {
            task,
            base_dir: PathBuf::new(),
            required_version: REQUIRED_VERSION.to_owned(),
            required_providers: BTreeMap::new(),
            backend: None,
            providers: Vec::new(),
            terraform_version: None,
        };
        Self { root }
    }

    /// Sets the start of the configuration's relative paths; without it a relative
    /// module source stays as written.
    pub fn base_dir(mut self, base_dir: impl AsRef<Path>) -> Self {
        base_dir.as_ref().clone_into(&mut self.root.base_dir);
        self
    }

    /// The versions that the module accepts; [`REQUIRED_VERSION`] by default.
    pub fn required_version(mut self, constraint: impl Into<String>) -> Self {
        self.root.required_version = constraint.into();
        self
    }

    /// Sources and versions of providers by name: a version, or an object with
    /// `source` and `version`. Those that the task does not use are left out.
    pub fn required_providers(mut self, providers: BTreeMap<String, Literal>) -> Self {
        self.root.required_providers = providers;
        self
    }

    /// Sets the backend of the state; without it no `backend` block is written.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.root.backend = Some(backend);
        self
    }

    /// Takes the task's providers from the configuration's blocks.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] when an alias is not configured, or two
    /// instances of one provider are used.
    pub fn providers(mut self, blocks: &[ProviderBlock]) -> Result<Self> {
        self.root.providers = Provider::of_task(&self.root.task, blocks)?;
        Ok(self)
    }

    /// The version of the tool that will read the files; a current one by default.
    pub fn terraform_version(mut self, version: Version) -> Self {
        self.root.terraform_version = Some(version);
        self
    }

    /// Ends the collection.
    pub fn build(self) -> RootModule {
        self.root
    }
}
