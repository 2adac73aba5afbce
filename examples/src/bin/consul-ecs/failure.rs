use consul_watch::error_chain;
use ecs_mesh_init::Error;

/// Why a command ended without success, and how the operator learns of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Before there is a log: on standard error.
    Early(String),
    /// In the log.
    Logged(Error),
}

impl Failure {
    pub(crate) fn early(error: &Error) -> Self {
        Self::Early(error_chain(error))
    }

    /// Exit codes are upstream's: whatever went wrong is 1.
    #[expect(clippy::unused_self, reason = "all failures have one code today")]
    pub(crate) fn code(&self) -> u8 {
        1
    }

    #[expect(clippy::print_stderr, reason = "for when there is no log yet")]
    pub(crate) fn tell(&self) {
        match self {
            Self::Early(text) => eprintln!("{text}"),
            Self::Logged(error) => tracing::error!("{}", error_chain(error)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Logged(error)
    }
}
