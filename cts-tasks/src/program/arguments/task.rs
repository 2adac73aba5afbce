//! The commands below `task`, with their flags.

use std::path::PathBuf;

use clap::{ArgAction, Subcommand};

use super::{ConnectionFlags, EventsFlags, LookFlags, LookTaskFlags, Refused, go_bool};
use crate::program::{Program, exit::Exit};

/// The commands below `task`.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum TaskCommand {
    /// Applies the plan of a task that waits for approval. It is shown and must be approved.
    #[command(args_override_self = true, override_usage = "task approve [options] <task name>")]
    Approve(ApprovedFlags),
    /// Creates the task of a file. What its first run would change is shown and must be
    /// approved; then the task is created and run.
    #[command(
        args_override_self = true,
        override_usage = "task create [options] --task-file=<task config>"
    )]
    Create(CreateFlags),
    /// Deletes a task. A task that runs is deleted as soon as the run has ended. What it has
    /// built stays.
    #[command(args_override_self = true, override_usage = "task delete [options] <task name>")]
    Delete(ApprovedFlags),
    /// Disables a task: changes in Consul no longer run it.
    #[command(args_override_self = true, override_usage = "task disable [options] <task name>")]
    Disable(NamedFlags),
    /// Forgets the plan of a task that waits for approval. The next run makes a new one.
    #[command(args_override_self = true, override_usage = "task discard [options] <task name>")]
    Discard(NamedFlags),
    /// Enables a task. What its run would change is shown and, if there is anything, must be
    /// approved; then the task is enabled and run.
    #[command(args_override_self = true, override_usage = "task enable [options] <task name>")]
    Enable(ApprovedFlags),
    /// Shows what happened to a task, the newest at the end: its last runs, and with -follow
    /// what happens from now on.
    #[command(args_override_self = true, override_usage = "task events [options] <task name>")]
    Events(EventsFlags),
    /// Shows what the module of a task would get now, and the difference from what was last
    /// applied.
    #[command(args_override_self = true, override_usage = "task inputs [options] <task name>")]
    Inputs(LookTaskFlags),
    /// Lists the tasks, with the state of each.
    #[command(args_override_self = true, override_usage = "task list [options]")]
    List(LookFlags),
    /// Shows the plan of a task that waits for approval.
    #[command(args_override_self = true, override_usage = "task plan [options] <task name>")]
    Plan(NamedFlags),
    /// Runs a task now, whether or not anything has changed, and waits for the end.
    #[command(args_override_self = true, override_usage = "task run [options] <task name>")]
    Run(NamedFlags),
    /// Shows a task: its configuration, what it gets, its last runs, and the plan that waits.
    #[command(args_override_self = true, override_usage = "task show [options] <task name>")]
    Show(LookTaskFlags),
}

/// The flag that leaves out the question for approval.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct ApprovalFlag {
    /// Goes on without asking.
    #[arg(long = "auto-approve", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value = "false", action = ArgAction::Set,
          value_parser = go_bool)]
    pub(crate) auto_approve: bool,
}

/// Flags of `task create`.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct CreateFlags {
    #[command(flatten)]
    pub(crate) approval: ApprovalFlag,
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    /// The file that holds the task: one task block, as in a configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) task_file: Option<PathBuf>,
    /// Arguments that have no effect, as upstream.
    #[arg(hide = true)]
    arguments: Vec<String>,
}

/// Flags of commands that change one task.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct NamedFlags {
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    /// The task's name.
    #[arg(hide = true)]
    names: Vec<String>,
}

/// Flags of commands that change one task and ask before.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct ApprovedFlags {
    #[command(flatten)]
    pub(crate) approval: ApprovalFlag,
    #[command(flatten)]
    pub(crate) named: NamedFlags,
}

impl NamedFlags {
    /// The task.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    fn check(&self) -> Result<(), Refused> {
        // Those beyond the first have no effect, as upstream.
        if !self.names.is_empty() {
            return Ok(());
        }
        Err(required("this command requires one argument: [options] <task name>"))
    }
}

impl TaskCommand {
    /// Checks what the parser cannot know to be wrong.
    pub(super) fn checked(self, program: &Program) -> Result<Self, Refused> {
        match &self {
            Self::Create(flags) if flags.task_file.is_none() => {
                let message = format!(
                    "==> Error: unable to create request\n    no task file provided\n    \
                     For additional help try '{} task create --help'",
                    program.name
                );
                return Err(Refused { message, exit: Exit::RequiredFlags });
            }
            Self::Create(_) | Self::List(_) => {}
            Self::Events(flags) => flags.look.named.check()?,
            Self::Inputs(flags) | Self::Show(flags) => flags.named.check()?,
            Self::Approve(flags) | Self::Delete(flags) | Self::Enable(flags) => {
                flags.named.check()?;
            }
            Self::Disable(flags) | Self::Discard(flags) | Self::Plan(flags) | Self::Run(flags) => {
                flags.check()?;
            }
        }
        Ok(self)
    }
}

fn required(what: &str) -> Refused {
    let message = format!("==> Error: {what}\n    -help shows how the command is used.");
    Refused { message, exit: Exit::RequiredFlags }
}
