//! What makes several instances of a program one cluster.

use crate::{Config, DaemonOptions, Diagnostic, config::BlockKind};

/// A block that configures a cluster, and that turns it into what a
/// [`crate::Daemon`] runs with.
pub trait ClusterKind: BlockKind {
    /// Returns `true` if the configuration asks for a cluster.
    ///
    /// # Errors
    ///
    /// Every mistake in its block, and whatever else does not go with a cluster.
    fn is_configured(&self, config: &Config) -> Result<bool, Vec<Diagnostic>>;

    /// Puts the cluster, its store and its permit into `options`; called only where
    /// [`ClusterKind::is_configured`] says so.
    ///
    /// # Errors
    ///
    /// What cannot be used of the configuration.
    fn join(
        &self,
        config: &Config,
        settings: ClusterSettings,
        options: &mut DaemonOptions,
    ) -> Result<(), Vec<Diagnostic>>;
}

/// The command line's settings of a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterSettings {
    /// Stored tasks give way to those of the files, each time this instance leads.
    pub reset_storage: bool,
}
