//! Kinds of drivers and blocks that read what this crate does not know.

use std::{fmt, sync::Arc};

use super::{decode::named_as, value::ConfigValue};
use crate::{Diagnostic, DriverKind};

/// Claims a block at the top of the configuration that this crate does not know.
pub trait BlockKind: fmt::Debug + Send + Sync + 'static {
    /// The block's name, such as `high_availability`.
    fn name(&self) -> &'static str;

    /// Attributes whose values must never be shown, as dotted paths below the block.
    fn secret_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks the block: every mistake and every warning, each with its place.
    fn check(&self, body: &ConfigValue) -> Vec<Diagnostic>;
}

/// The readers of blocks that this crate does not know: drivers, and blocks at the
/// top.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    pub(super) drivers: Vec<Arc<dyn DriverKind>>,
    pub(super) blocks: Vec<Arc<dyn BlockKind>>,
}

/// Keys of a task that some driver may claim, and that have an error of their
/// own when the driver in use does not.
pub(super) const DRIVER_KEYS: &[&str] = &["terraform_version", "terraform_cloud_workspace"];

impl Registry {
    /// Claims nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver; of two with one label the later counts.
    #[must_use]
    pub fn driver(mut self, kind: Arc<dyn DriverKind>) -> Self {
        self.drivers.retain(|other| other.label() != kind.label());
        self.drivers.push(kind);
        self
    }

    /// Adds a block; of two with one name the later counts.
    #[must_use]
    pub fn block(mut self, kind: Arc<dyn BlockKind>) -> Self {
        self.blocks.retain(|other| other.name() != kind.name());
        self.blocks.push(kind);
        self
    }

    pub(super) fn find_driver(&self, label: &str) -> Option<&Arc<dyn DriverKind>> {
        self.drivers.iter().find(|kind| kind.label() == label)
    }

    /// The name of the key, in upper or lower case, that somebody reads of the body
    /// at `path`; `None` if nobody does.
    pub(super) fn claimed(&self, path: &str, key: &str) -> Option<&'static str> {
        if path.is_empty() {
            let names: Vec<_> = self.blocks.iter().map(|kind| kind.name()).collect();
            return named_as(key, &names);
        }
        let task = path.starts_with("task[") && path.ends_with(']');
        let claimed = || self.drivers.iter().find_map(|kind| named_as(key, kind.task_blocks()));
        task.then(|| named_as(key, DRIVER_KEYS).or_else(claimed)).flatten()
    }
}
