//! Completes this program's command line in a shell.
//!
//! A shell that was told so by `-autocomplete-install` runs the program with
//! the line so far in `COMP_LINE`, and reads candidates from it.

mod install;

use std::path::PathBuf;

use crate::program::{
    Program,
    arguments::grammar,
    complain,
    connection::{impatient_client, process_environment},
    exit::Exit,
    print,
};

/// The tasks that a command can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Enabled,
    Disabled,
    /// With a plan that waits for approval.
    Waiting,
}

/// `-autocomplete-install`
pub(crate) fn install_for_user(program: &Program) -> Exit {
    let changed =
        environment().and_then(|(home, path)| install::install(program.name, &home, &path));
    report(changed, "Completion is there as soon as you start a new shell.", "It is there already.")
}

/// `-autocomplete-uninstall`
pub(crate) fn uninstall_for_user(program: &Program) -> Exit {
    let changed =
        environment().and_then(|(home, path)| install::uninstall(program.name, &home, &path));
    report(changed, "Completion is gone from new shells.", "It was not there.")
}

fn environment() -> Result<(PathBuf, PathBuf), String> {
    let home = process_environment("HOME").ok_or("the variable HOME is not set")?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| format!("cannot tell where this program is: {error}"))?;
    Ok((home.into(), program))
}

fn report(changed: Result<Vec<PathBuf>, String>, done: &str, nothing: &str) -> Exit {
    match changed {
        Err(error) => {
            complain(&format!("Error: {error}"));
            Exit::Error
        }
        Ok(changed) if changed.is_empty() => {
            print(nothing);
            Exit::Ok
        }
        Ok(changed) => {
            for file in changed {
                print(&format!("Changed {}", file.display()));
            }
            print(done);
            Exit::Ok
        }
    }
}

/// Asks the daemon that the environment names; none if it does not answer,
/// since a shell that completes has no place for an error.
pub(crate) fn tasks(wanted: Wanted) -> Vec<String> {
    let asked = async {
        let client = impatient_client(&process_environment).ok()?;
        let statuses = client.task_statuses(false, None).await.ok()?;
        let fits = statuses.into_values().filter(|task| match wanted {
            Wanted::All => true,
            Wanted::Enabled => task.enabled,
            Wanted::Disabled => !task.enabled,
            Wanted::Waiting => task.waiting_plan.is_some(),
        });
        Some(fits.map(|task| task.task_name).collect())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.ok().and_then(|runtime| runtime.block_on(asked)).unwrap_or_default()
}

/// Returns the possible completions of the word at the end of `line`. `tasks` is
/// asked for the names of tasks where one belongs.
pub(crate) fn candidates(
    program: &Program,
    line: &str,
    tasks: impl FnOnce(Wanted) -> Vec<String>,
) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let last = if line.ends_with(char::is_whitespace) { "" } else { words.pop().unwrap_or("") };
    let mut command = grammar(program);
    let mut path = Vec::new();
    let mut value_follows = false;
    for word in words.into_iter().skip(1) {
        if value_follows {
            value_follows = false;
        } else if word.starts_with('-') {
            value_follows = takes_value(&command, word);
        } else if let Some(below) = command.find_subcommand(word).cloned() {
            path.push(word);
            command = below;
        }
    }
    // A value: the shell completes file names by itself.
    if value_follows || (last.starts_with('-') && last.contains('=')) {
        return Vec::new();
    }
    let mut found = if last.starts_with('-') {
        flags(&command)
    } else if command.has_subcommands() {
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect()
    } else {
        match path.as_slice() {
            ["task", "enable"] => tasks(Wanted::Disabled),
            ["task", "disable" | "run"] => tasks(Wanted::Enabled),
            ["task", "delete" | "events" | "inputs" | "show"] => tasks(Wanted::All),
            ["task", "approve" | "discard" | "plan"] => tasks(Wanted::Waiting),
            _ => Vec::new(),
        }
    };
    found.retain(|candidate| candidate.starts_with(last));
    found.sort();
    found
}

/// Every flag, written with one dash.
fn flags(command: &clap::Command) -> Vec<String> {
    command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| argument.get_long().map(|name| format!("-{name}")))
        .collect()
}

/// Returns `true` if the word after the flag `word` is its value.
fn takes_value(command: &clap::Command, word: &str) -> bool {
    let name = word.trim_start_matches('-');
    command
        .get_arguments()
        .filter(|argument| argument.get_long() == Some(name))
        .any(|argument| argument.get_action().takes_values() && !argument.is_require_equals_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Vec<String> {
        candidates(&crate::program::sync(), line, |wanted| match wanted {
            Wanted::All => vec!["a".to_owned(), "b".to_owned()],
            Wanted::Enabled => vec!["a".to_owned()],
            Wanted::Disabled => vec!["b".to_owned()],
            Wanted::Waiting => vec!["c".to_owned()],
        })
    }

    #[test]
    fn commands_are_completed() {
        assert_eq!(
            complete("consul-terraform-sync "),
            ["doctor", "start", "status", "task", "validate"]
        );
        assert_eq!(complete("consul-terraform-sync star"), ["start"]);
        assert_eq!(complete("/usr/bin/consul-terraform-sync task e"), ["enable", "events"]);
        let below = complete("consul-terraform-sync task ");
        for name in ["create", "delete", "disable", "enable"] {
            assert!(below.contains(&name.to_owned()), "{below:?}");
        }
    }

    #[test]
    fn flags_are_completed_with_one_dash() {
        assert_eq!(
            complete("consul-terraform-sync start -config-"),
            ["-config-dir", "-config-file"]
        );
        assert!(
            complete("consul-terraform-sync task enable -").contains(&"-auto-approve".to_owned())
        );
        assert!(complete("consul-terraform-sync -").contains(&"-autocomplete-install".to_owned()));
    }

    #[test]
    fn values_of_flags_are_left_to_the_shell() {
        assert_eq!(complete("consul-terraform-sync start -config-file "), [""; 0]);
        assert_eq!(complete("consul-terraform-sync start -config-file=s"), [""; 0]);
        assert_eq!(complete("consul-terraform-sync task enable -http-addr http://a:1 "), ["b"]);
        assert_eq!(complete("consul-terraform-sync task enable -auto-approve "), ["b"]);
    }

    #[test]
    fn names_of_the_tasks_that_fit_are_completed() {
        assert_eq!(complete("consul-terraform-sync task enable "), ["b"]);
        assert_eq!(complete("consul-terraform-sync task disable "), ["a"]);
        assert_eq!(complete("consul-terraform-sync task delete "), ["a", "b"]);
        assert_eq!(complete("consul-terraform-sync task delete b"), ["b"]);
        assert_eq!(complete("consul-terraform-sync task approve "), ["c"]);
        assert_eq!(complete("consul-terraform-sync task create "), [""; 0]);
    }

    #[test]
    fn a_line_of_anything_is_borne() {
        for line in ["", " ", "x", "-", "consul-terraform-sync -=", "a b c d -e= f \u{0} ä"] {
            complete(line);
        }
    }
}
