//! Runs one command to its end: its output, its stop, and what an error repeats.

use std::{
    ffi::OsString,
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use chrono::Utc;
use cts_tasks::StopReason;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep_until},
};

use super::{CliOptions, environment, stream};
use crate::{Error, Invocation, Result, Step, ToolDiagnostic, language::quote};

/// Interval between two reads of a running command's output.
const LOOK: Duration = Duration::from_millis(250);

/// Time that an interrupted command gets to end where the stop is urgent from
/// the beginning, so that it can write its state.
const URGENT: Duration = Duration::from_secs(1);

/// The most that is read of what a command prints.
const MAX_OUTPUT: usize = 256 << 20;

/// The most of a command's plain text that an error repeats.
const MAX_TEXT: usize = 8 << 10;

/// Exit code and output of a command that has ended.
pub(super) struct Finished {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    stderr: String,
    /// Texts that an error does not repeat.
    masked: Vec<SecretString>,
}

impl Finished {
    /// Returns `true` if the command ended by itself and gave its lock back.
    pub(super) fn gave_lock_back(&self) -> bool {
        const STAYED: &str = "Error releasing the state lock";
        self.code.is_some() && !self.stdout.contains(STAYED) && !self.stderr.contains(STAYED)
    }

    pub(super) fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// The JSON document that the command printed. A warning about the tool's
    /// own configuration may stand before it.
    pub(super) fn document<T: DeserializeOwned>(&self, step: Step) -> Result<T> {
        let start = self.stdout.find("\n{").map_or(0, |at| at + 1);
        let start = if self.stdout.starts_with('{') { 0 } else { start };
        let text = self.stdout.get(start..).unwrap_or_default();
        serde_json::from_str(text).map_err(|error| {
            let problem = format!("not the JSON that was expected: {error}");
            Error::Output { step, problem }
        })
    }

    /// The error of a command that failed: its diagnostics, or else what it printed.
    pub(super) fn failure(&self, step: Step, mut diagnostics: Vec<ToolDiagnostic>) -> Error {
        for found in &mut diagnostics {
            found.map_texts(|text| mask(std::mem::take(text), &self.masked));
        }
        let mut text =
            if diagnostics.is_empty() { without_frame(&self.stderr) } else { String::new() };
        match self.code {
            Some(code) if text.is_empty() && diagnostics.is_empty() => {
                text = format!("exit code {code}");
            }
            // Whatever it printed before is not the reason.
            None if text.is_empty() => "killed by a signal".clone_into(&mut text),
            None => text.insert_str(0, "killed by a signal\n"),
            Some(_) => {}
        }
        Error::Failed { step, diagnostics, text }
    }
}

/// Runs one command to its end.
pub(super) async fn run(
    binary: &Path,
    arguments: &[OsString],
    options: &CliOptions,
    run: &Invocation,
    step: Step,
) -> Result<Finished> {
    if let Some(reason) = run.stop.reason() {
        return Err(Error::Interrupted { reason });
    }
    let (stdout, stderr) = (output_file()?, output_file()?);
    if options.log {
        tracing::info!(command = %shown(binary, arguments), "running");
    }
    let started = Utc::now();
    let child = spawn(binary, arguments, options, run, [&stdout, &stderr])
        .map_err(|source| not_started(binary, step, source))?;
    let mut running = Running { child, interrupted: false };
    let mut tail = stream::Tail::new(run, options.log && !prints_document(step, arguments));
    tail.watch_lock(step, started);
    let (status, stopped) = running.wait(options, run, &stdout, &mut tail).await?;
    tail.look(&stdout)?;
    let finished = Finished {
        code: status.code(),
        stdout: read(&stdout)?,
        stderr: mask(read(&stderr)?, &run.masked),
        masked: run.masked.clone(),
    };
    tail.ended(&finished);
    if options.log {
        finished.stderr.lines().for_each(stream::log_line);
    }
    match stopped {
        Some(reason) if !status.success() => Err(Error::Interrupted { reason }),
        _ => Ok(finished),
    }
}

/// Returns `true` if a command prints one document for machines. In those of a plan and
/// of outputs, sensitive values stand as they are, so none is logged.
fn prints_document(step: Step, arguments: &[OsString]) -> bool {
    let streams = matches!(step, Step::Plan | Step::Apply | Step::Destroy);
    !streams && arguments.iter().any(|argument| argument == "-json")
}

fn spawn(
    binary: &Path,
    arguments: &[OsString],
    options: &CliOptions,
    run: &Invocation,
    [stdout, stderr]: [&File; 2],
) -> std::io::Result<Child> {
    let input = match &run.input {
        Some(file) => file.try_clone()?.into(),
        None => Stdio::null(),
    };
    Command::new(binary)
        .args(arguments)
        .current_dir(&run.directory)
        .env_clear()
        .envs(environment::of(options, run))
        .stdin(input)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .process_group(0)
        .spawn()
}

/// A command that has not been waited for; dropping it interrupts it.
struct Running {
    child: Child,
    /// A second interrupt would make Terraform end at once, without writing its state.
    interrupted: bool,
}

impl Running {
    /// Waits for the end. Asked to stop, it interrupts first and kills later.
    async fn wait(
        &mut self,
        options: &CliOptions,
        run: &Invocation,
        stdout: &File,
        tail: &mut stream::Tail<'_>,
    ) -> Result<(ExitStatus, Option<StopReason>)> {
        let group = self.pid();
        let mut stopped = None;
        let (mut interrupted_at, mut kill_at, mut urgent) = (None, None, false);
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                status = self.child.wait() => {
                    let status = status.map_err(|source| Error::Process {
                        action: "wait for the command", source,
                    })?;
                    if stopped.is_some() {
                        kill_group(group);
                    }
                    return Ok((status, stopped));
                }
                reason = run.stop.stopped(), if stopped.is_none() => {
                    stopped = Some(reason);
                    let now = Instant::now();
                    interrupted_at = Some(now);
                    kill_at = options.grace(reason).map(|grace| now + grace);
                    tracing::warn!(%reason, "interrupting the running command");
                    self.interrupt();
                }
                () = run.stop.urgent(), if stopped.is_some() && !urgent => {
                    urgent = true;
                    let now = Instant::now();
                    let earliest = interrupted_at.map_or(now, |at: Instant| at + URGENT);
                    kill_at = Some(earliest.max(now));
                }
                () = until(kill_at), if kill_at.is_some() => {
                    kill_at = None;
                    tracing::error!(
                        directory = %run.directory.display(),
                        "the command did not end in time and is killed; what it was at may be \
                         half done"
                    );
                    kill_group(group);
                }
                _ = look.tick() => tail.look(stdout)?,
            }
        }
    }

    /// Asks the command alone; what it started, it ends in its own order.
    fn interrupt(&mut self) {
        if let Some(pid) = self.pid().filter(|_| !self.interrupted) {
            self.interrupted = true;
            report(kill(pid, Signal::SIGINT));
        }
    }

    /// `None` once the command was waited for, when its number may be another's.
    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupt();
    }
}

/// Ends the whole process group, also what an interrupted command left in it.
fn kill_group(group: Option<Pid>) {
    if let Some(group) = group {
        report(killpg(group, Signal::SIGKILL));
    }
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

/// A process that is gone needs no signal; anything else is odd, but there is
/// nothing else to do.
fn report(sent: nix::Result<()>) {
    if let Err(error) = sent
        && error != nix::errno::Errno::ESRCH
    {
        tracing::warn!(%error, "cannot send a signal to the command");
    }
}

/// A file without a name, readable by nobody else.
fn output_file() -> Result<File> {
    tempfile::tempfile()
        .map_err(|source| Error::Process { action: "make a file for the command's output", source })
}

/// All that was written so far. The position of the file is the command's, and is left alone.
fn read(file: &File) -> Result<String> {
    let failed = |source| Error::Process { action: "read the command's output", source };
    let length = file.metadata().map_err(failed)?.len();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT)];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Replaces secrets, in the forms in which the tool repeats them: as they are,
/// as its language writes them, and each line of a longer text.
pub(super) fn mask(mut text: String, secrets: &[SecretString]) -> String {
    for secret in secrets {
        let secret = secret.expose_secret();
        let quoted = quote(secret);
        let lines = secret.lines().filter(|line| line.len() >= 8);
        for form in [secret, quoted.trim_matches('"')].into_iter().chain(lines) {
            if !form.is_empty() && text.contains(form) {
                text = text.replace(form, "(sensitive value)");
            }
        }
    }
    text
}

fn not_started(binary: &Path, step: Step, source: std::io::Error) -> Error {
    const ENOEXEC: i32 = nix::errno::Errno::ENOEXEC as i32;
    if step == Step::Version && source.raw_os_error() == Some(ENOEXEC) {
        return Error::Unsupported {
            message: format!(
                "incompatible Terraform binary: remove Terraform from the configured path or \
                 specify a new path to safely install a compatible version. {} cannot be run on \
                 this machine",
                binary.display()
            ),
        };
    }
    Error::Process { action: "start the command", source }
}

/// The command for the log. Arguments never hold secrets.
fn shown(binary: &Path, arguments: &[OsString]) -> String {
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let words: Vec<_> = std::iter::once(binary.to_string_lossy()).chain(arguments).collect();
    words.join(" ")
}

/// Plain text of the command without the frames that it draws, and bounded.
fn without_frame(text: &str) -> String {
    let frame = |c: char| matches!(c, '│' | '╷' | '╵') || c.is_whitespace();
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.trim_start_matches(frame).trim_end())
        .filter(|line| !line.is_empty())
        .collect();
    let joined = lines.join("\n");
    match joined.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => joined.get(..end).unwrap_or_default().to_owned() + " …",
        None => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::{Finished, mask, without_frame};
    use crate::Step;

    fn finished(stdout: &str, stderr: &str) -> Finished {
        Finished { code: Some(1), stdout: stdout.into(), stderr: stderr.into(), masked: Vec::new() }
    }

    #[test]
    fn a_warning_before_the_document_is_skipped() {
        let warned = "There are some problems with the CLI configuration:\n╷\n│ Warning: x\n╵\n\n";
        for text in ["{\"a\": 1}", &format!("{warned}{{\"a\": 1}}\n")] {
            let document: serde_json::Value = finished(text, "").document(Step::Version).unwrap();
            assert_eq!(document["a"], 1);
        }
        assert!(finished("no JSON", "").document::<serde_json::Value>(Step::Version).is_err());
    }

    #[test]
    fn a_failure_without_diagnostics_repeats_the_text_without_its_frame() {
        let error = finished("", "╷\n│ Error: a\n│ \n│ b\n╵\n").failure(Step::Init, Vec::new());
        assert_eq!(error.to_string(), "init failed: Error: a\nb");
        let silent = finished("", "").failure(Step::Init, Vec::new());
        assert_eq!(silent.to_string(), "init failed: exit code 1");
    }

    #[test]
    fn secrets_are_masked_in_each_form_that_the_tool_repeats() {
        let secrets = ["a\"b\nsecond line".into(), "p4ss".into()];
        let text = "2: key = \"a\\\"b\\nsecond line\"\nsecond line\npostgres://u:p4ss@h/d\nkept";
        assert_eq!(
            mask(text.to_owned(), &secrets),
            "2: key = \"(sensitive value)\"\n(sensitive value)\npostgres://u:(sensitive value)@h/d\nkept"
        );
    }

    #[test]
    fn plain_text_is_bounded() {
        assert!(without_frame(&"ä".repeat(100_000)).chars().count() < 9000);
    }
}
