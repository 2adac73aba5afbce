//! The commands that look at a running daemon and change nothing.

mod condition;
mod events;
mod inputs;
mod list;
mod show;
mod status;

use std::{io, time::Duration};

use chrono::{DateTime, Local};
use serde::Serialize;

pub(crate) use events::events;
pub(crate) use inputs::inputs;
pub(crate) use list::list;
pub(crate) use show::show;
pub(crate) use status::run_command as run_status;

use super::{exit::Exit, output::Terminal};
use crate::{Changes, Event, Status};

/// Prints a document for programs.
pub(crate) fn print_json(value: &impl Serialize, terminal: &mut Terminal<'_>) -> io::Result<()> {
    terminal.raw(&serde_json::to_string_pretty(value)?)
}

/// A time to the second, with its distance from UTC.
fn time(time: DateTime<Local>) -> String {
    time.format("%Y-%m-%d %H:%M:%S %z").to_string()
}

/// Returns the duration of a run.
fn took(event: &Event) -> Duration {
    (event.end_time - event.start_time).to_std().unwrap_or_default()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

/// Names the outcome of a run in one word.
fn result(event: &Event) -> &'static str {
    match (event.success, &event.waiting_plan) {
        (true, _) => "successful",
        (false, Some(_)) => "waiting",
        (false, None) => "failed",
    }
}

/// Formats the counts of a run's changes: `+2 ~0 -1`.
fn counted(changes: &Changes) -> String {
    format!("+{} ~{} -{}", changes.add, changes.change, changes.destroy)
}

/// The first line of a text, for a table.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The exit code that tells a script of the worst among several tasks.
fn exit_of(statuses: impl IntoIterator<Item = Status>) -> Exit {
    let mut exit = Exit::Ok;
    for status in statuses {
        match status {
            Status::Errored | Status::Critical => return Exit::TaskFailed,
            Status::Waiting => exit = Exit::Waiting,
            Status::Successful | Status::Unknown => {}
        }
    }
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_of_the_worst() {
        use Status::{Critical, Errored, Successful, Unknown, Waiting};
        for (statuses, exit) in [
            (&[Successful, Unknown][..], Exit::Ok),
            (&[Waiting, Successful], Exit::Waiting),
            (&[Waiting, Errored], Exit::TaskFailed),
            (&[Critical], Exit::TaskFailed),
            (&[], Exit::Ok),
        ] {
            assert_eq!(exit_of(statuses.iter().copied()), exit, "{statuses:?}");
        }
    }
}
