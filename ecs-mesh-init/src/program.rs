//! The command line of `consul-ecs`: its commands, help, log and exit codes.

mod commands;
mod failure;
mod logging;
mod usage;

use std::{ffi::OsString, fmt, process::ExitCode};

pub use commands::until_terminated;
pub use failure::Failure;
pub use logging::start as start_log;

/// A program with the commands of `consul-ecs`, and those that another crate adds.
///
/// ```no_run
/// use ecs_mesh_init::program::Program;
///
/// fn main() -> std::process::ExitCode {
///     Program::new(env!("CARGO_PKG_VERSION")).run()
/// }
/// ```
///
/// It starts the runtime and the log by itself, so `main` does nothing else. What each
/// command can depends on the features `tls`, `iam-auth` and `server-watch` of this crate.
#[derive(Debug)]
pub struct Program {
    version: &'static str,
    more: Vec<Box<dyn Commands>>,
}

/// Commands that another crate adds to a [`Program`].
pub trait Commands: fmt::Debug + Send + Sync + 'static {
    /// Lines of the list of commands: each indented by four, with what it does at column 25.
    fn list(&self) -> &'static str;

    /// The help of one of these commands; `None` for a command of somebody else.
    fn help(&self, command: &str) -> Option<&'static str>;

    /// Runs one of these commands to its end, and gives the exit code.
    ///
    /// # Errors
    ///
    /// Why it ended without success.
    fn run(&self, command: &str, arguments: &[OsString]) -> Result<u8, Failure>;
}

impl Program {
    /// Starts a description; `version` is usually `env!("CARGO_PKG_VERSION")`.
    pub fn new(version: &'static str) -> Self {
        Self { version, more: Vec::new() }
    }

    /// Adds the commands of another crate.
    #[must_use]
    pub fn commands(mut self, more: impl Commands) -> Self {
        self.more.push(Box::new(more));
        self
    }

    /// Runs the command that the process was started with, to its end.
    pub fn run(self) -> ExitCode {
        let mut arguments = std::env::args_os().skip(1);
        let subcommand = arguments.next().map(|name| name.to_string_lossy().into_owned());
        match commands::run(&self, subcommand.as_deref(), arguments.collect()) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => {
                failure.tell();
                ExitCode::from(failure.code())
            }
        }
    }

    /// Whoever has the command, if one of those that were added has it.
    fn owner(&self, command: &str) -> Option<&dyn Commands> {
        self.more.iter().map(|more| &**more).find(|more| more.help(command).is_some())
    }
}

/// Prints the answer to a command.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub fn print(text: &str) {
    println!("{text}");
}
