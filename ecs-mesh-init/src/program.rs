//! The command line of `consul-ecs`: its commands, help, log and exit codes.

mod commands;
mod definition;
mod failure;
mod logging;
mod usage;

pub use commands::until_terminated;
pub use definition::{Commands, Program};
pub use failure::Failure;
pub use logging::start as start_log;

/// Prints the answer to a command.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub fn print(text: &str) {
    println!("{text}");
}
