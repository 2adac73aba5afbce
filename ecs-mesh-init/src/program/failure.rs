//! The ends of a command without success, and what the operator reads of them.

use consul_watch::error_chain;

/// Why a command ended without success, and how the operator learns of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Before there is a log: on standard error.
    Early(String),
    /// In the log.
    Logged(String),
    /// On standard error: there is no such command.
    UnknownCommand(String),
}

impl Failure {
    /// Wraps the error that a command ended with before there was a log.
    pub fn early(error: &crate::Error) -> Self {
        Self::Early(error_chain(error))
    }

    /// The exit code, which is upstream's.
    pub fn code(&self) -> u8 {
        match self {
            Self::Early(_) | Self::Logged(_) => 1,
            Self::UnknownCommand(_) => 127,
        }
    }

    /// Tells the operator, where [`Failure`] says.
    #[expect(clippy::print_stderr, reason = "for when there is no log yet")]
    pub fn tell(&self) {
        match self {
            Self::Early(text) | Self::UnknownCommand(text) => eprintln!("{text}"),
            Self::Logged(text) => tracing::error!("{text}"),
        }
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::Logged(error_chain(&error))
    }
}
