//! The kinds by which a program accepts the block `high_availability` and becomes part of a cluster.

use std::sync::Arc;

use cts_tasks::{
    ClusterKind, ClusterSettings, Config, ConfigValue, DaemonOptions, Diagnostic, config::BlockKind,
};

use super::{
    cluster::{ClusterOptions, CtsCluster},
    settings::{BLOCK, HighAvailability},
};

/// Configuration block `high_availability`, for the parser.
#[derive(Debug, Clone, Copy, Default)]
pub struct HighAvailabilityKind;

impl BlockKind for HighAvailabilityKind {
    fn name(&self) -> &'static str {
        BLOCK
    }

    fn check(&self, body: &ConfigValue) -> Vec<Diagnostic> {
        HighAvailability::check(body)
    }
}

impl ClusterKind for HighAvailabilityKind {
    fn is_configured(&self, config: &Config) -> Result<bool, Vec<Diagnostic>> {
        HighAvailability::of(config).map(|settings| settings.is_some())
    }

    fn join(
        &self,
        config: &Config,
        settings: ClusterSettings,
        options: &mut DaemonOptions,
    ) -> Result<(), Vec<Diagnostic>> {
        let Some(block) = HighAvailability::of(config)? else { return Ok(()) };
        let cluster =
            ClusterOptions { reset_storage: settings.reset_storage, ..ClusterOptions::default() };
        let cluster = CtsCluster::new(config, block, cluster)
            .map_err(|error| vec![Diagnostic::error(consul_watch::error_chain(&error))])?;
        Arc::new(cluster).join(options);
        Ok(())
    }
}
