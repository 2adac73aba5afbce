use std::{io, path::PathBuf};

use consul_watch::BoxError;

use crate::config::Violations;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kept a task from joining the mesh, or from leaving it.
///
/// The texts that operators know from upstream are kept; no variant ever holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong; every violation that was found is named.
    #[error("invalid config: {violations}")]
    Config {
        /// What is wrong, with JSON paths.
        violations: Violations,
    },
    /// A value outside the configuration is not usable.
    #[error("{problem}")]
    Input {
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The task's metadata could not be had.
    #[error("{step}")]
    Metadata {
        /// What was being done.
        step: String,
        /// The cause.
        source: BoxError,
    },
    /// Consul refused, or could not be reached.
    #[error("{operation}")]
    Consul {
        /// What was being done.
        operation: String,
        /// What Consul's client reported.
        source: consul_watch::Error,
    },
    /// A file could not be read or written.
    #[error("{operation} {}", path.display())]
    File {
        /// What was being done, such as `writing`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// A command could not be run, or failed.
    #[error("{command}: {problem}")]
    Command {
        /// The program.
        command: String,
        /// What happened to it.
        problem: String,
    },
    /// The login with the AWS IAM auth method could not be prepared.
    #[error("{step}")]
    Login {
        /// What was being done.
        step: String,
        /// Whether another attempt may succeed.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
    /// The caller asked to stop.
    #[error("{operation}: stopped before it was done")]
    Stopped {
        /// What was being done.
        operation: &'static str,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// The call.
        operation: &'static str,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// The cause.
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

    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config { .. }
            | Self::Input { .. }
            | Self::File { .. }
            | Self::Command { .. }
            | Self::Stopped { .. } => false,
            Self::Metadata { .. } => true,
            Self::Consul { source, .. } => source.is_retryable(),
            Self::Login { retryable, .. } | Self::Other { retryable, .. } => *retryable,
        }
    }
}
