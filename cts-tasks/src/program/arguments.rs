//! The command line.

mod connection;
mod look;
mod start;
mod task;

use std::{ffi::OsString, path::Path};

use clap::{
    ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub(crate) use connection::ConnectionFlags;
pub(crate) use look::{DoctorFlags, EventsFlags, LookFlags, LookTaskFlags, StatusFlags};
pub(crate) use start::{ConfigurationFlags, StartFlags};
pub(crate) use task::{ApprovedFlags, CreateFlags, NamedFlags, TaskCommand};

use crate::program::{Program, exit::Exit, help};

/// A command line that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    Version,
    Help(String),
    Start {
        flags: StartFlags,
        /// Flags without a command: the old form of `start`.
        legacy: bool,
    },
    Validate(ConfigurationFlags),
    Task(TaskCommand),
    Status(StatusFlags),
    Doctor(DoctorFlags),
    InstallCompletion,
    UninstallCompletion,
}

/// A command line that was not understood.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) exit: Exit,
}

#[derive(Debug, Parser)]
#[command(
    disable_version_flag = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    args_override_self = true
)]
struct CommandLine {
    /// Prints the version and the supported Terraform versions.
    #[arg(long, short = 'v', action = ArgAction::SetTrue)]
    version: bool,
    /// Makes the shell complete commands, flags and task names of this program.
    #[arg(long, action = ArgAction::SetTrue)]
    autocomplete_install: bool,
    /// Takes back what -autocomplete-install did.
    #[arg(long, action = ArgAction::SetTrue)]
    autocomplete_uninstall: bool,
    #[command(flatten)]
    start: StartFlags,
    #[command(subcommand)]
    command: Option<Subcommands>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Checks what start would need, and changes nothing: Consul, the rights of its token,
    /// the driver's tool, the limits of this process.
    #[command(args_override_self = true, override_usage = "doctor [options]")]
    Doctor(DoctorFlags),
    /// Starts the daemon: watches Consul and runs the tasks of the configuration.
    #[command(args_override_self = true, override_usage = "start [options]")]
    Start(StartFlags),
    /// Shows health, role and tasks of a running daemon. Ends with 0 when all is well, 17
    /// when a plan waits for approval, 18 when the last run of a task failed, and 19 when the
    /// daemon is not healthy.
    #[command(args_override_self = true, override_usage = "status [options]")]
    Status(StatusFlags),
    /// Lists, shows, creates, deletes, enables, disables and runs tasks of a running daemon.
    #[command(subcommand, override_usage = "task <command> [options] [args]")]
    Task(TaskCommand),
    /// Checks a configuration and changes nothing. Every mistake is shown at once,
    /// with the line that holds it.
    #[command(args_override_self = true, override_usage = "validate [options]")]
    Validate(ConfigurationFlags),
}

/// Builds the parser of commands and flags, from which help and completion are
/// made.
pub(crate) fn grammar(program: &Program) -> clap::Command {
    let mut grammar = CommandLine::command().name(program.name).about(program.about);
    grammar.build();
    grammar
}

/// Returns the text that `-version` prints.
pub(crate) fn version(program: &Program) -> String {
    let mut text = format!("{} v{}", program.name, program.version);
    for compatible in &program.compatible {
        text.push_str("\nCompatible with ");
        text.push_str(compatible);
    }
    text
}

impl Invocation {
    /// Reads a command line, without the program's name.
    pub(crate) fn parse(
        program: &Program,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, Refused> {
        let arguments: Vec<OsString> = arguments.into_iter().map(two_dashes).collect();
        let all = std::iter::once(OsString::from(program.name)).chain(arguments.clone());
        let matched = CommandLine::command().name(program.name).try_get_matches_from(all);
        let parsed = match matched.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
            Ok(parsed) => parsed,
            Err(error) => return not_parsed(program, &error, &arguments),
        };
        if parsed.version {
            return Ok(Self::Version);
        }
        if parsed.autocomplete_install {
            return Ok(Self::InstallCompletion);
        }
        if parsed.autocomplete_uninstall {
            return Ok(Self::UninstallCompletion);
        }
        match parsed.command {
            Some(Subcommands::Start(flags)) => Ok(Self::Start {
                flags: flags
                    .with_configuration(&arguments)
                    .ok_or_else(|| no_configuration(program))?,
                legacy: false,
            }),
            Some(Subcommands::Validate(flags)) => Ok(Self::Validate(
                flags.with_configuration(&arguments).ok_or_else(|| no_configuration(program))?,
            )),
            Some(Subcommands::Doctor(flags)) => Ok(Self::Doctor(
                flags.with_configuration(&arguments).ok_or_else(|| no_configuration(program))?,
            )),
            Some(Subcommands::Status(flags)) => Ok(Self::Status(flags)),
            Some(Subcommands::Task(command)) => command.checked(program).map(Self::Task),
            None => {
                let flags = parsed.start.with_configuration(&arguments);
                let flags = flags.ok_or_else(|| Refused {
                    message: format!(
                        "{}\n\n{}",
                        help::of(program, &[]),
                        no_configuration(program).message
                    ),
                    exit: Exit::RequiredFlags,
                })?;
                Ok(Self::Start { flags, legacy: true })
            }
        }
    }
}

/// Help, or a mistake.
fn not_parsed(
    program: &Program,
    error: &clap::Error,
    arguments: &[OsString],
) -> Result<Invocation, Refused> {
    match error.kind() {
        ErrorKind::DisplayHelp => Ok(Invocation::Help(help::of(program, arguments))),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            // Upstream's library for commands ends so where only help can be shown.
            let below = arguments.first().is_some_and(|first| first == "task");
            let exit = if below { Exit::NoSubcommand } else { Exit::RequiredFlags };
            Err(Refused { message: help::of(program, arguments), exit })
        }
        _ => {
            // The first line and the tip, with flags as people write them here.
            let text = error.to_string();
            let said: Vec<&str> = text
                .lines()
                .take_while(|line| !line.starts_with("Usage:"))
                .filter(|line| !line.is_empty())
                .collect();
            let message = said.join("\n").replace("'--", "'-");
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            let tip = configuration_tip(error).unwrap_or_default();
            let message = format!("Error: {message}{tip}\n\n{}", help::hint(program, arguments));
            let below = arguments.first().is_some_and(|first| first == "task");
            let exit = match error.kind() {
                ErrorKind::InvalidSubcommand if below => Exit::NoSubcommand,
                ErrorKind::InvalidSubcommand => Exit::UnknownCommand,
                _ => Exit::FlagParse,
            };
            Err(Refused { message, exit })
        }
    }
}

/// For who names a configuration without its flag.
fn configuration_tip(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let path = Path::new(found);
    let known = path.extension().is_some_and(|ending| ending == "hcl" || ending == "json");
    (known && !found.starts_with('-'))
        .then(|| format!("\n  tip: to read this file write '-config-file={found}'"))
}

fn no_configuration(program: &Program) -> Refused {
    let message = format!(
        "unable to start {}\nno config file provided\n\n\
         Name one with -config-file=<file> or -config-dir=<dir>.",
        program.name
    );
    Refused { message, exit: Exit::RequiredFlags }
}

/// `-config-file` as `--config-file`; `-v` and `-h` stay.
fn two_dashes(argument: OsString) -> OsString {
    match argument.to_str() {
        Some(text) if text.len() > 2 && text.starts_with('-') && !text.starts_with("--") => {
            format!("-{text}").into()
        }
        _ => argument,
    }
}

/// A boolean as Go's flags take it.
pub(crate) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("invalid boolean value {text:?}; write true or false")),
    }
}

#[cfg(test)]
mod tests;
