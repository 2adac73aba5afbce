//! Which drivers, blocks and cluster this binary is made of.

use std::sync::Arc;

use cts_driver_terraform::TerraformKind;
use cts_driver_tfc::TfcKind;
use cts_ha::tasks::{ClusterOptions, CtsCluster, HighAvailability, HighAvailabilityKind};
use cts_tasks::{
    DaemonOptions, Diagnostic,
    config::{Config, Registry, TaskRules},
};

/// Who reads which part of a configuration.
pub(crate) fn registry() -> Registry {
    Registry::new()
        .driver(Arc::new(TerraformKind::default()))
        .driver(Arc::new(TfcKind::default()))
        .block(Arc::new(HighAvailabilityKind))
}

/// What the process is started for, as far as its cluster matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To run until it is told to stop.
    Daemon,
    /// To run every task once.
    Once,
    /// To look, which no other instance needs to know of.
    Inspect,
}

/// What the daemon runs on besides its configuration.
///
/// `reset_storage` is the flag of that name: stored tasks give way to those of
/// the files.
///
/// # Errors
///
/// When flags and configuration do not go together.
pub(crate) fn daemon_options(
    config: &Config,
    rules: TaskRules,
    mode: Mode,
    reset_storage: bool,
) -> Result<DaemonOptions, Vec<Diagnostic>> {
    let mut options = DaemonOptions::default();
    options.rules = Some(rules);
    let Some(settings) = HighAvailability::of(config)? else {
        if reset_storage {
            return Err(vec![
                Diagnostic::error(
                    "-reset-storage: there is no stored state to reset without high availability",
                )
                .help("leave the flag out, or configure a high_availability block"),
            ]);
        }
        return Ok(options);
    };
    match mode {
        Mode::Inspect => return Ok(options),
        Mode::Once => {
            return Err(vec![
                Diagnostic::error("once mode is not supported with high availability")
                    .help("leave out -once, or the high_availability block"),
            ]);
        }
        Mode::Daemon => {}
    }
    let mut cluster = ClusterOptions::default();
    cluster.reset_storage = reset_storage;
    let cluster = CtsCluster::new(config, settings, cluster)
        .map_err(|error| vec![Diagnostic::error(consul_watch::error_chain(&error))])?;
    Arc::new(cluster).join(&mut options);
    Ok(options)
}
