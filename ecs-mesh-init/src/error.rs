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

#[cfg(test)]
mod tests {
    use consul_watch::error_chain;

    use super::*;
    use crate::violation::Violation;

    /// Each variant as a person reads it: its own text, and what its causes add.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one row for each variant")]
    fn every_error_says_what_failed_and_with_what() {
        let refused = || consul_watch::Error::Timeout {
            operation: "agent.service.register",
            address: "http://127.0.0.1:8500".to_owned(),
            after: std::time::Duration::from_secs(10),
        };
        let violations = Violations::new(vec![
            Violation::new("(root)", "bootstrapDir is required"),
            Violation::new("service.port", "Must be less than or equal to 65535"),
        ]);
        let table = [
            (
                Error::Config { violations },
                "invalid config: 2 errors occurred:\n\t* (root): bootstrapDir is required\n\
                 \t* service.port: Must be less than or equal to 65535",
                "",
            ),
            (
                Error::input("CONSUL_ECS_CONFIG_JSON is not set"),
                "CONSUL_ECS_CONFIG_JSON is not set",
                "",
            ),
            (
                Error::Metadata {
                    step: "reading the metadata of http://169.254.170.2/v4/task".to_owned(),
                    source: "status 404".into(),
                },
                "reading the metadata of http://169.254.170.2/v4/task",
                ": status 404",
            ),
            (
                Error::consul("registering service web-abcdef", refused()),
                "registering service web-abcdef",
                ": agent.service.register: no answer from http://127.0.0.1:8500 within 10 s",
            ),
            (
                Error::file(
                    "writing",
                    "/consul/envoy-bootstrap.json",
                    io::ErrorKind::NotFound.into(),
                ),
                "writing /consul/envoy-bootstrap.json",
                ": entity not found",
            ),
            (
                Error::Command {
                    command: "iptables".to_owned(),
                    problem: "exit code 4".to_owned(),
                },
                "iptables: exit code 4",
                "",
            ),
            (
                Error::login("signing the request to sts", true, "no credentials"),
                "signing the request to sts",
                ": no credentials",
            ),
            (
                Error::Stopped { operation: "waiting for Consul" },
                "waiting for Consul: stopped before it was done",
                "",
            ),
            (
                Error::Other { operation: "register", retryable: false, source: "away".into() },
                "register failed",
                ": away",
            ),
        ];
        for (at, (error, text, causes)) in table.iter().enumerate() {
            // Without a wildcard: a new variant does not compile until it has a row.
            let row = match error {
                Error::Config { .. } => 0,
                Error::Input { .. } => 1,
                Error::Metadata { .. } => 2,
                Error::Consul { .. } => 3,
                Error::File { .. } => 4,
                Error::Command { .. } => 5,
                Error::Login { .. } => 6,
                Error::Stopped { .. } => 7,
                Error::Other { .. } => 8,
            };
            assert_eq!((row, error.to_string().as_str()), (at, *text));
            assert_eq!(error_chain(error), format!("{text}{causes}"));
        }
        assert_eq!(table.len(), 9);
    }
}
