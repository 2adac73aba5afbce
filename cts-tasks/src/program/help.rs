//! Help in upstream's form: one dash, a flag's default behind it.

use std::ffi::OsString;

use crate::program::{Program, arguments::grammar, output::wrapped};

/// The help of the command that `arguments` begin with.
pub(crate) fn of(program: &Program, arguments: &[OsString]) -> String {
    let mut command = addressed(program, arguments);
    let mut lines = vec![usage(program, &mut command)];
    if let Some(about) = command.get_about() {
        lines.extend([String::new(), wrapped(&sentence(&about.to_string()), "  ")]);
    }
    if command.has_subcommands() {
        lines.extend([String::new(), "Commands:".to_owned()]);
        for below in command.get_subcommands() {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            let first = about.split_once(". ").map_or(about.as_str(), |(first, _)| first);
            lines.push(format!("  {:<9} {}", below.get_name(), first.trim_end_matches('.')));
        }
    }
    lines.extend(options(program, &command));
    lines.join("\n")
}

/// Returns the usage of the command that `arguments` begin with, in two lines.
pub(crate) fn hint(program: &Program, arguments: &[OsString]) -> String {
    let usage = usage(program, &mut addressed(program, arguments));
    format!("{usage}\nWith -help it shows its options.")
}

fn addressed(program: &Program, arguments: &[OsString]) -> clap::Command {
    let mut command = grammar(program);
    for argument in arguments {
        let name = argument.to_string_lossy();
        match command.find_subcommand(&*name) {
            Some(below) => command = below.clone(),
            None => break,
        }
    }
    command
}

fn usage(program: &Program, command: &mut clap::Command) -> String {
    let name = program.name;
    if command.get_name() == name {
        return format!("Usage CLI: {name} <command> [-help] [options]");
    }
    let usage = command.render_usage().to_string();
    format!("Usage: {name} {}", usage.trim_start_matches("Usage: "))
}

/// The flags of a command. Those of `start`, which the old form takes without
/// a command, are shown there.
fn options(program: &Program, command: &clap::Command) -> Vec<String> {
    let root = command.get_name() == program.name;
    let mut options: Vec<_> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && argument.get_long() != Some("help"))
        .filter(|argument| !(root && argument.get_action().takes_values()))
        .filter_map(|argument| Some((argument.get_long()?, argument)))
        .collect();
    if options.is_empty() {
        return Vec::new();
    }
    options.sort_by_key(|(name, _)| *name);
    let mut lines = vec![String::new(), "Options:".to_owned()];
    for (name, argument) in options {
        let default = argument.get_default_values().first();
        let default = default.filter(|_| argument.get_action().takes_values());
        let value = default.map_or_else(
            || placeholder(argument),
            |default| format!(" {}", default.to_string_lossy()),
        );
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        lines.extend([
            String::new(),
            format!("  -{name}{value}"),
            wrapped(&sentence(&help), "      "),
        ]);
    }
    lines
}

/// The parser takes the last full stop away.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// Returns the placeholder of a flag's value, for a flag that takes one.
fn placeholder(argument: &clap::Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    name.map_or_else(String::new, |name| format!("=<{}>", name.to_lowercase()))
}
