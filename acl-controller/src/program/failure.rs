//! The failures of a command, as its exit code and the log show them.

use ecs_mesh_init::program::Failure;

/// Wraps the error that a command ended with, for the log.
pub(super) fn logged(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::Logged(consul_watch::error_chain(error))
}
