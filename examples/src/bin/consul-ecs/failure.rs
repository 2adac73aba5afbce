use consul_watch::error_chain;

/// Why a command ended without success, and how the operator learns of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Before there is a log: on standard error.
    Early(String),
    /// In the log.
    Logged(String),
    /// On standard error: there is no such command.
    UnknownCommand(String),
}

impl Failure {
    pub(crate) fn early(error: &ecs_mesh_init::Error) -> Self {
        Self::Early(error_chain(error))
    }

    /// The exit code, which is upstream's.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Early(_) | Self::Logged(_) => 1,
            Self::UnknownCommand(_) => 127,
        }
    }

    #[expect(clippy::print_stderr, reason = "for when there is no log yet")]
    pub(crate) fn tell(&self) {
        match self {
            Self::Early(text) | Self::UnknownCommand(text) => eprintln!("{text}"),
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
