//! Flags of the commands that look at a running daemon and change nothing.

use std::ffi::OsString;

use clap::ArgAction;

use super::{ConfigurationFlags, ConnectionFlags, NamedFlags, go_bool};

/// The flag that asks for an answer in JSON, for a program.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct JsonFlag {
    /// Prints one JSON document, for scripts.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) json: bool,
}

/// Flags of `status`.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct StatusFlags {
    #[command(flatten)]
    pub(crate) look: LookFlags,
    /// Asks for the daemon's health only: ends with 0 or 19, whatever tasks do. For the health
    /// check of a container.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) health: bool,
}

/// Flags of `status` and `task list`.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct LookFlags {
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// Flags of `task show` and `task inputs`.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct LookTaskFlags {
    #[command(flatten)]
    pub(crate) named: NamedFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// Flags of `task events`.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct EventsFlags {
    #[command(flatten)]
    pub(crate) look: LookTaskFlags,
    /// Goes on with what happens from now on, until it is interrupted.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) follow: bool,
}

/// Flags of `doctor`.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct DoctorFlags {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationFlags,
    /// Also makes each task ready in a temporary folder: reaches the backend, and downloads
    /// the providers and modules that no cache has.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) init: bool,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

impl DoctorFlags {
    pub(super) fn with_configuration(self, arguments: &[OsString]) -> Option<Self> {
        let configuration = self.configuration.with_configuration(arguments)?;
        Some(Self { configuration, ..self })
    }
}
