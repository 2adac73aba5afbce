//! The exit codes of the program: upstream's, and those of what upstream cannot do.
//! Scripts decide by them, so that none may change its meaning.

use std::process::ExitCode;

/// The exit codes of the process.
///
/// Source: Consul-Terraform-Sync 0.9, exit codes of `command`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// `task` has no command below it.
    NoSubcommand = 1,
    /// Something failed while it ran.
    Error = 11,
    /// It did not end in time after a signal.
    ShutdownTimeout = 12,
    /// A required flag is missing.
    RequiredFlags = 13,
    /// The command line cannot be read.
    FlagParse = 14,
    /// The configuration cannot be used.
    Config = 15,
    /// The driver's tool cannot be used.
    DriverInstall = 16,
    /// Nothing was applied, since a plan waits for approval. Not a code of upstream's.
    Waiting = 17,
    /// The last run of a task failed, as `status` found it. Not a code of upstream's.
    TaskFailed = 18,
    /// The instance is not healthy, as `status` found it, or `doctor` found what keeps it
    /// from starting. Not a code of upstream's.
    Unhealthy = 19,
    /// There is no such command.
    UnknownCommand = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
