use std::{ffi::OsString, path::PathBuf};

use clap::{ArgAction, Parser, Subcommand, error::ErrorKind};

use crate::exit::Exit;

/// A command line that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) command: Command,
    /// Flags without a command: the old form of `start`.
    pub(crate) legacy: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Version,
    Help(String),
    Start(StartOptions),
}

/// A command line that was not understood.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) exit: Exit,
}

/// Flags of `start`.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct StartOptions {
    /// A configuration file (.hcl or .json); may be repeated.
    #[arg(long = "config-file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A directory of configuration files, taken in the order of their names; may be repeated.
    #[arg(long = "config-dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Runs each task once and ends.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) once: bool,
    /// Shows what each task would change, changes nothing, and ends.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    inspect: bool,
    /// Inspects this task only; may be repeated.
    #[arg(long = "inspect-task", value_name = "NAME")]
    pub(crate) inspect_tasks: Vec<String>,
    /// Lets the tasks of the files replace the stored ones, each time this instance becomes the leader.
    #[arg(long = "reset-storage", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value = "false", action = ArgAction::Set,
          value_parser = go_bool)]
    pub(crate) reset_storage: bool,
    /// Files and directories in the order of the command line.
    #[arg(skip)]
    pub(crate) configuration: Vec<PathBuf>,
}

impl StartOptions {
    pub(crate) fn inspect(&self) -> bool {
        self.inspect || !self.inspect_tasks.is_empty()
    }
}

#[derive(Debug, Parser)]
#[command(
    name = "consul-terraform-sync",
    about = "Runs Terraform when what Consul knows changes",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    after_help = "Long options may be written with one dash or two, as -once or --once."
)]
struct CommandLine {
    /// Prints the version and the supported Terraform versions.
    #[arg(long, short = 'v', action = ArgAction::SetTrue)]
    version: bool,
    #[command(flatten)]
    start: StartOptions,
    #[command(subcommand)]
    command: Option<Subcommands>,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Watches Consul and runs the tasks of the configuration.
    Start(StartOptions),
}

/// What `-version` prints.
pub(crate) fn version() -> String {
    format!(
        "consul-terraform-sync v{}\nCompatible with Terraform {}",
        env!("CARGO_PKG_VERSION"),
        cts_driver_terraform::REQUIRED_VERSION
    )
}

impl Invocation {
    /// Reads a command line, without the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Refused> {
        let arguments: Vec<OsString> = arguments.into_iter().map(two_dashes).collect();
        let name = OsString::from("consul-terraform-sync");
        let parsed = CommandLine::try_parse_from(std::iter::once(name).chain(arguments.clone()));
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                return Ok(Self { command: Command::Help(error.to_string()), legacy: false });
            }
            Err(error) => {
                return Err(Refused { message: error.to_string(), exit: Exit::FlagParse });
            }
        };
        if parsed.version {
            return Ok(Self { command: Command::Version, legacy: false });
        }
        let (mut options, legacy) = match parsed.command {
            Some(Subcommands::Start(options)) => (options, false),
            None => (parsed.start, true),
        };
        options.configuration = configuration(&arguments);
        if options.configuration.is_empty() {
            return Err(no_configuration());
        }
        Ok(Self { command: Command::Start(options), legacy })
    }
}

fn no_configuration() -> Refused {
    let message = "unable to start consul-terraform-sync\nno config file provided\n\n\
                   Name one with -config-file FILE or -config-dir DIR; -h shows all options.";
    Refused { message: message.to_owned(), exit: Exit::RequiredFlags }
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

/// Files and directories in the order in which they were named, which decides
/// what wins; the parser keeps the order only within each flag.
fn configuration(arguments: &[OsString]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        for flag in ["--config-file", "--config-dir"] {
            if argument == flag {
                paths.extend(arguments.next().map(PathBuf::from));
                break;
            }
            let text = argument.to_string_lossy();
            if let Some(path) = text.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
                paths.push(PathBuf::from(path));
            }
        }
    }
    paths
}

/// A boolean as Go's flags take it.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("invalid boolean value {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, Refused> {
        Invocation::parse(line.split_whitespace().map(OsString::from))
    }

    fn start(line: &str) -> StartOptions {
        match parse(line).unwrap().command {
            Command::Start(options) => options,
            other => panic!("not a start: {other:?}"),
        }
    }

    /// Spec: CTS82
    #[test]
    fn flags_take_one_dash_or_two_and_values_with_or_without_equals() {
        for line in [
            "start -config-file a.hcl -once",
            "start --config-file a.hcl --once",
            "start -config-file=a.hcl -once=true",
            "start --config-file=a.hcl --once=1",
        ] {
            let options = start(line);
            assert_eq!(options.configuration, [PathBuf::from("a.hcl")], "{line}");
            assert!(options.once, "{line}");
        }
        assert!(!start("start -config-file a.hcl -once=false").once);
    }

    #[test]
    fn files_and_directories_keep_the_order_of_the_command_line() {
        let options = start("start -config-dir d -config-file=a.hcl -config-dir=e");
        assert_eq!(options.configuration, ["d", "a.hcl", "e"].map(PathBuf::from));
    }

    #[test]
    fn flags_without_a_command_are_the_old_form_of_start() {
        assert!(parse("-config-file a.hcl").unwrap().legacy);
        assert!(!parse("start -config-file a.hcl").unwrap().legacy);
    }

    #[test]
    fn naming_a_task_implies_inspection() {
        assert!(start("start -config-file a.hcl -inspect-task web").inspect());
    }

    #[test]
    fn mistakes_have_their_exit_codes() {
        assert_eq!(parse("start").unwrap_err().exit, Exit::RequiredFlags);
        assert_eq!(parse("").unwrap_err().exit, Exit::RequiredFlags);
        assert_eq!(parse("start -config-file a.hcl -wrong").unwrap_err().exit, Exit::FlagParse);
        assert_eq!(
            parse("start -config-file a.hcl -once=maybe").unwrap_err().exit,
            Exit::FlagParse
        );
    }

    #[test]
    fn version_and_help_are_no_mistakes() {
        for line in ["-version", "--version", "-v"] {
            assert_eq!(parse(line).unwrap().command, Command::Version);
        }
        assert!(matches!(parse("-h").unwrap().command, Command::Help(_)));
        assert!(
            matches!(parse("start -h").unwrap().command, Command::Help(text) if text.contains("config-file"))
        );
    }
}
