//! What a program consists of: its version, and the commands that other crates add.

use std::{ffi::OsString, fmt};

use super::Failure;

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
    pub(super) version: &'static str,
    pub(super) more: Vec<Box<dyn Commands>>,
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

    /// Returns the commands that one of this name belongs to, if it was added.
    pub(super) fn owner(&self, command: &str) -> Option<&dyn Commands> {
        self.more.iter().map(|more| &**more).find(|more| more.help(command).is_some())
    }
}
