//! The stream that plans and applies print, read while they run and in the end.

use std::{fs::File, os::unix::fs::FileExt as _};

use chrono::{DateTime, Utc};
use cts_tasks::{Action, Changes};
use serde::Deserialize;

use super::process::{Finished, mask};
use crate::{Error, Invocation, Result, Step, ToolDiagnostic, held::HeldLock};

/// Counts, changes and diagnostics from the stream of a plan or an apply.
///
/// Source: Terraform 1.11, machine-readable UI.
#[derive(Debug, Default)]
pub(super) struct Stream {
    diagnostics: Vec<ToolDiagnostic>,
    changes: Changes,
    outputs: bool,
    applied: Option<Counts>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Counts {
    #[serde(default)]
    add: u64,
    #[serde(default)]
    change: u64,
    #[serde(default)]
    remove: u64,
}

/// A line of the stream; unknown kinds are ignored.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default)]
    kind: String,
    /// The major version of the stream's format stands here, in the first line.
    #[serde(default)]
    ui: Option<String>,
    /// Text of the line for people.
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(default)]
    diagnostic: Option<ToolDiagnostic>,
    #[serde(default)]
    change: Option<Hook>,
    #[serde(default)]
    hook: Option<Hook>,
    #[serde(default)]
    changes: Option<Summary>,
    #[serde(default)]
    outputs: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Deserialize)]
struct Hook {
    resource: Option<Resource>,
    #[serde(default)]
    action: String,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    addr: String,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    operation: String,
    #[serde(flatten)]
    counts: Counts,
}

impl Stream {
    /// Reads the whole output; lines that are no JSON are not part of the stream.
    pub(super) fn read(stdout: &str, step: Step) -> Result<Self> {
        let mut stream = Self::default();
        for line in stdout.lines().filter_map(Line::read) {
            if let Some(version) = line.ui.as_deref().filter(|_| line.kind == "version")
                && version.split('.').next() != Some("1")
            {
                let problem = format!("a stream of version {version} is not known");
                return Err(Error::Output { step, problem });
            }
            stream.take(line);
        }
        Ok(stream)
    }

    fn take(&mut self, line: Line) {
        match line.kind.as_str() {
            "diagnostic" => self.diagnostics.extend(line.diagnostic),
            "planned_change" => {
                let change = line.change.and_then(|hook| Some((hook.resource?, hook.action)));
                if let Some((resource, action)) = change
                    && let Some(action) = action_of(&action)
                {
                    self.changes.record(resource.addr, action);
                }
            }
            "change_summary" => {
                let finished = line.changes.filter(|summary| summary.operation != "plan");
                self.applied = finished.map(|summary| summary.counts).or(self.applied);
            }
            "outputs" => {
                let changed = |output: &serde_json::Value| {
                    output.get("action").is_some_and(|action| action != "noop")
                };
                self.outputs |=
                    line.outputs.iter().flat_map(|outputs| outputs.values()).any(changed);
            }
            _ => {}
        }
    }

    pub(super) fn into_errors(self) -> Vec<ToolDiagnostic> {
        self.diagnostics.into_iter().filter(ToolDiagnostic::is_error).collect()
    }

    /// Returns the changes: the counts of the finished apply, with the addresses
    /// that were planned.
    pub(super) fn into_changes(self) -> Changes {
        let mut changes = self.changes;
        if let Some(counts) = self.applied {
            (changes.add, changes.change, changes.destroy) =
                (counts.add, counts.change, counts.remove);
        }
        changes.outputs_only = changes.is_empty() && self.outputs;
        changes
    }
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        line.starts_with('{').then(|| serde_json::from_str(line).ok()).flatten()
    }
}

fn action_of(name: &str) -> Option<Action> {
    match name {
        "create" => Some(Action::Create),
        "update" => Some(Action::Update),
        "delete" => Some(Action::Delete),
        "replace" => Some(Action::Replace),
        _ => None,
    }
}

/// Logs a line as a person would read it: of the stream, its message and what
/// a diagnostic explains.
pub(super) fn log_line(line: &str) {
    let read = Line::read(line).filter(|line| !line.message.is_empty());
    let explained = read.as_ref().and_then(|line| line.diagnostic.as_ref());
    let shown = read.as_ref().map_or(line, |line| &line.message);
    let detail = explained.map_or("", |diagnostic| &diagnostic.detail);
    for shown in [shown, detail].into_iter().flat_map(str::lines) {
        let shown = shown.trim_end();
        if !shown.is_empty() {
            tracing::info!("{shown}");
        }
    }
}

/// Follows the output of a running command, and tells progress.
pub(super) struct Tail<'a> {
    run: &'a Invocation,
    log: bool,
    read: u64,
    lock: LockWatch,
}

/// Knowledge about the command's lock on the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockWatch {
    /// The command takes none that could stay.
    Off,
    /// It was started then, and has printed nothing that it prints under the lock.
    Waiting(Step, DateTime<Utc>),
    /// It has the lock, and the directory holds the note.
    Noted,
}

/// Lines that the tool prints only while it has the lock.
const UNDER_LOCK: [&str; 5] =
    ["refresh_start", "planned_change", "resource_drift", "change_summary", "apply_start"];

impl<'a> Tail<'a> {
    pub(super) fn new(run: &'a Invocation, log: bool) -> Self {
        Self { run, log, read: 0, lock: LockWatch::Off }
    }

    /// Notes in the directory when the command is seen to have the lock.
    pub(super) fn watch_lock(&mut self, step: Step, started: DateTime<Utc>) {
        if matches!(step, Step::Plan | Step::Apply | Step::Destroy) {
            self.lock = LockWatch::Waiting(step, started);
        }
    }

    /// Removes the note unless the lock may have stayed.
    pub(super) fn ended(&self, finished: &Finished) {
        if self.lock == LockWatch::Noted
            && finished.gave_lock_back()
            && let Err(error) = HeldLock::forget(&self.run.directory)
        {
            tracing::warn!(%error, "cannot remove the note of the lock on the state");
        }
    }

    /// Notes the lock when a line proves it. Without the note the lock of a
    /// command that is killed is not given back by the next run, only named.
    fn note_lock(&mut self, line: &str) {
        let LockWatch::Waiting(step, started) = self.lock else { return };
        if !UNDER_LOCK.iter().any(|kind| line.contains(kind))
            || !Line::read(line).is_some_and(|line| UNDER_LOCK.contains(&&*line.kind))
        {
            return;
        }
        self.lock = LockWatch::Noted;
        if let Err(error) = HeldLock::note(&self.run.directory, step, started) {
            tracing::warn!(%error, "cannot note the lock on the state");
        }
    }

    /// Tells what is new, in whole lines.
    pub(super) fn look(&mut self, file: &File) -> Result<()> {
        let failed = |source| Error::Process { action: "read the command's output", source };
        let length = file.metadata().map_err(failed)?.len();
        let mut bytes = vec![0; usize::try_from(length.saturating_sub(self.read)).unwrap_or(0)];
        file.read_exact_at(&mut bytes, self.read).map_err(failed)?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        bytes.truncate(end + 1);
        self.read += u64::try_from(bytes.len()).unwrap_or(0);
        for line in String::from_utf8_lossy(&bytes).lines() {
            self.tell(line);
        }
        Ok(())
    }

    /// Progress is made of addresses and actions only, because messages can
    /// repeat what a provisioner printed.
    fn tell(&mut self, line: &str) {
        self.note_lock(line);
        if self.log {
            log_line(&mask(line.to_owned(), &self.run.masked));
        }
        // Most lines tell that nothing changed; they are parsed once, in the end.
        if !line.contains("\"apply_") {
            return;
        }
        let Some(line) = Line::read(line) else { return };
        let happened = match line.kind.as_str() {
            "apply_start" => "started",
            "apply_complete" => "done",
            "apply_errored" => "failed",
            _ => return,
        };
        if let Some(hook) = line.hook
            && let Some(resource) = hook.resource
        {
            self.run.progress.report(&format!("{} {}: {happened}", hook.action, resource.addr));
        }
    }
}

#[cfg(test)]
mod tests {
    use cts_tasks::Action;

    use super::Stream;
    use crate::Step;

    const STREAM: &str = r#"There are some problems with the CLI configuration:
{"@level":"info","type":"version","terraform":"1.11.4","ui":"1.2"}
{"type":"planned_change","change":{"resource":{"addr":"a.x"},"action":"create"}}
{"type":"planned_change","change":{"resource":{"addr":"a.y"},"action":"replace"}}
{"type":"planned_change","change":{"resource":{"addr":"a.z"},"action":"noop"}}
{"type":"change_summary","changes":{"add":2,"change":0,"import":0,"remove":1,"operation":"plan"}}
{"type":"some_future_line","x":[1]}
{"type":"diagnostic","diagnostic":{"severity":"warning","summary":"w","detail":""}}
{"type":"diagnostic","diagnostic":{"severity":"error","summary":"e","detail":"d"}}
"#;

    #[test]
    fn the_stream_tells_changes_and_errors() {
        let stream = Stream::read(STREAM, Step::Apply).unwrap();
        assert_eq!(stream.into_errors().len(), 1);
        let changes = Stream::read(STREAM, Step::Apply).unwrap().into_changes();
        assert_eq!((changes.add, changes.change, changes.destroy), (2, 0, 1));
        assert_eq!(changes.addresses["a.y"], Action::Replace);
        assert!(!changes.addresses.contains_key("a.z"));
    }

    #[test]
    fn the_counts_of_the_finished_apply_win() {
        let done = r#"{"type":"change_summary","changes":{"add":5,"change":6,"remove":7,"operation":"apply"}}"#;
        let changes = Stream::read(&format!("{STREAM}{done}"), Step::Apply).unwrap().into_changes();
        assert_eq!((changes.add, changes.change, changes.destroy), (5, 6, 7));
    }

    #[test]
    fn changed_outputs_alone_are_a_change() {
        let outputs = |action: &str| {
            format!(
                r#"{{"type":"outputs","outputs":{{"o":{{"sensitive":false,"action":"{action}"}}}}}}"#
            )
        };
        let read = |text: &str| Stream::read(text, Step::Apply).unwrap().into_changes();
        assert!(read(&outputs("update")).outputs_only);
        assert!(read(&outputs("noop")).is_empty());
    }

    #[test]
    fn another_major_version_is_refused() {
        let line = r#"{"type":"version","ui":"2.0"}"#;
        assert!(Stream::read(line, Step::Apply).is_err());
    }
}
