use consul_watch::error_chain;

/// Why a command ended without success, and how the operator learns of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Before there is a log: on standard error.
    Early(String),
    /// In the log.
    Logged(String),
}

impl Failure {
    pub(crate) fn early(error: &ecs_mesh_init::Error) -> Self {
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
            Self::Logged(text) => tracing::error!("{text}"),
        }
    }
}

impl From<ecs_mesh_init::Error> for Failure {
    fn from(error: ecs_mesh_init::Error) -> Self {
        Self::Logged(error_chain(&error))
    }
}

#[cfg(feature = "acl-controller")]
impl From<acl_controller::Error> for Failure {
    fn from(error: acl_controller::Error) -> Self {
        Self::Logged(error_chain(&error))
    }
}

#[cfg(feature = "acl-controller")]
impl From<cts_ha::Error> for Failure {
    fn from(error: cts_ha::Error) -> Self {
        Self::Logged(error_chain(&error))
    }
}
