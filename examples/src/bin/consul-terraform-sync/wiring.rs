//! Which drivers, blocks and cluster this binary is made of.

use std::sync::Arc;

use cts_driver_terraform::TerraformKind;
use cts_driver_tfc::TfcKind;
use cts_tasks::{
    DaemonOptions, Diagnostic,
    config::{Config, Registry, TaskRules},
};

/// The block that makes several instances one deployment.
const HIGH_AVAILABILITY: &str = "high_availability";

/// Who reads which part of a configuration.
pub(crate) fn registry() -> Registry {
    Registry::new().driver(Arc::new(TerraformKind::default())).driver(Arc::new(TfcKind::default()))
}

/// What the daemon runs on besides its configuration.
///
/// `reset_storage` is the flag of that name: stored tasks give way to those of
/// the files.
///
/// # Errors
///
/// When flag and configuration do not go together.
pub(crate) fn daemon_options(
    config: &Config,
    rules: TaskRules,
    reset_storage: bool,
) -> Result<DaemonOptions, Diagnostic> {
    if reset_storage && !config.blocks.contains_key(HIGH_AVAILABILITY) {
        return Err(Diagnostic::error(
            "-reset-storage: there is no stored state to reset without high availability",
        )
        .help("leave the flag out, or configure a high_availability block"));
    }
    let mut options = DaemonOptions::default();
    options.rules = Some(rules);
    Ok(options)
}
