//! The errors of this crate: texts that operators know from upstream, and for each whether a retry
//! can help.

use std::{io, path::PathBuf};

use consul_watch::BoxError;

use crate::violation::Violations;

/// Result of every operation of this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A reason why a task could not join the mesh, or leave it.
///
/// The texts that operators know from upstream are kept; no variant ever holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong. Names every violation, not only the first.
    #[error("invalid config: {violations}")]
    Config {
        /// Violations, each with its JSON path.
        violations: Violations,
    },
    /// A value outside the configuration is not usable.
    #[error("{problem}")]
    Input {
        /// Description of the wrong value, and of one that would be right.
        problem: String,
    },
    /// The task's metadata is not available.
    #[error("{step}")]
    Metadata {
        /// Step that failed.
        step: String,
        /// Cause.
        source: BoxError,
    },
    /// Consul refused, or could not be reached.
    #[error("{operation}")]
    Consul {
        /// Operation that failed.
        operation: String,
        /// Error of the Consul client.
        source: consul_watch::Error,
    },
    /// A file could not be read or written.
    #[error("{operation} {}", path.display())]
    File {
        /// Operation that failed, such as `writing`.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A command could not be run, or failed.
    #[error("{command}: {problem}")]
    Command {
        /// Name of the program.
        command: String,
        /// Reason of the failure.
        problem: String,
    },
    /// The login with the AWS IAM auth method could not be prepared.
    #[error("{step}")]
    Login {
        /// Step that failed.
        step: String,
        /// `true` if another attempt may succeed.
        retryable: bool,
        /// Cause.
        source: BoxError,
    },
    /// The caller asked to stop.
    #[error("{operation}: stopped before it was done")]
    Stopped {
        /// Operation that was stopped.
        operation: &'static str,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// Name of the call.
        operation: &'static str,
        /// `true` if the same call may succeed later.
        retryable: bool,
        /// Cause.
        source: BoxError,
    },
}

impl Error {
    pub(crate) fn input(problem: impl Into<String>) -> Self {
        Self::Input { problem: problem.into() }
    }

    pub(crate) fn consul(operation: impl Into<String>, source: consul_watch::Error) -> Self {
        Self::Consul { operation: operation.into(), source }
    }

    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> Self {
        Self::File { operation, path: path.into(), source }
    }

    pub(crate) fn login(
        step: impl Into<String>,
        retryable: bool,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::Login { step: step.into(), retryable, source: source.into() }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config { .. }
            | Self::Input { .. }
            | Self::File { .. }
            | Self::Command { .. }
            // The files and commands of a task do not change while it starts: a second attempt
            // fails alike.
            | Self::Stopped { .. } => false,
            Self::Metadata { .. } => true,
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Login { retryable, .. } | Self::Other { retryable, .. } => *retryable,
        }
    }
}
