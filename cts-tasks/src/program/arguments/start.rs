//! Flags of `start`, and those that name the files of the configuration.

use std::{ffi::OsString, path::PathBuf};

use clap::ArgAction;

use super::go_bool;

/// Flags that name the configuration's files.
#[derive(Debug, Default, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct ConfigurationFlags {
    /// A directory of configuration files that end in .hcl or .json, taken in the order of
    /// their names. May be repeated.
    #[arg(long = "config-dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// A configuration file that ends in .hcl or .json. May be repeated; where files disagree,
    /// the later one counts.
    #[arg(long = "config-file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Files and directories in the order of the command line.
    #[arg(skip)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Flags of `start`.
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct StartFlags {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationFlags,
    /// Shows what each task would change, changes nothing, and ends.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    inspect: bool,
    /// Inspects this task only. May be repeated.
    #[arg(long = "inspect-task", value_name = "NAME")]
    pub(crate) inspect_tasks: Vec<String>,
    /// Runs each task once and ends. There are no buffer periods, and nothing is served.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) once: bool,
    /// Lets the tasks of the files replace the stored ones, each time this instance becomes
    /// the leader. Only under high availability.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) reset_storage: bool,
    /// Writes the log as one JSON object on each line.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) log_json: bool,
}

impl StartFlags {
    pub(crate) fn inspect(&self) -> bool {
        self.inspect || !self.inspect_tasks.is_empty()
    }

    pub(super) fn with_configuration(self, arguments: &[OsString]) -> Option<Self> {
        let configuration = self.configuration.with_configuration(arguments)?;
        Some(Self { configuration, ..self })
    }
}

impl ConfigurationFlags {
    /// With the order of the command line, which decides what wins and which
    /// the parser keeps only within each flag; `None` if nothing was named.
    pub(super) fn with_configuration(self, arguments: &[OsString]) -> Option<Self> {
        let paths = in_order(arguments);
        (!paths.is_empty()).then_some(Self { paths, ..self })
    }
}

fn in_order(arguments: &[OsString]) -> Vec<PathBuf> {
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
