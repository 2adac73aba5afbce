//! Runs the commands of a page, in order, in one shell.
//!
//! The shell has a folder, a network and a process table of its own: a page can use Consul's
//! usual ports, reaches nothing but itself, and nothing of it is left when it ends.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    book::{Page, pages},
    checks,
    markdown::{Block, Kind},
    programs::{self, SUITE},
    wildcard,
};

/// The longest that a page, and a command that is repeated, may take. Both only end a test
/// that has failed already.
const PAGE: &str = "300";
const UNTIL: Duration = Duration::from_mins(1);

/// Pages that run at the same time.
const AT_ONCE: usize = 3;

/// A shell with the page's folder.
pub(crate) struct Session {
    folder: TempDir,
    shell: Child,
    input: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The command that gives what follows it a network and processes of its own.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    // Root keeps the other users, so that a program can be run as one of them.
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    command.args((!root).then_some("--map-root-user"));
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

impl Session {
    pub(crate) fn start(path: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("guide.").tempdir().unwrap();
        let isolated = unshare();
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=5", PAGE]).arg(isolated.get_program());
        shell.args(isolated.get_args()).args(["bash", "--noprofile", "--norc"]);
        shell.env_clear().envs(std::env::vars_os().filter(|(name, _)| name == "REAL_PARTS_REPORT"));
        shell.env("PATH", path).env("HOME", folder.path()).env("LC_ALL", "C.UTF-8");
        shell.env("CHECKPOINT_DISABLE", "1").env("NO_COLOR", "1").env("TZ", "UTC");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir(folder.path());
        let mut shell = shell.spawn().unwrap();
        let input = shell.stdin.take().unwrap();
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut session = Self { folder, shell, input, answers };
        let (status, printed) = session.run("ip link set lo up").unwrap();
        assert_eq!(status, 0, "{printed}");
        session
    }

    /// Runs one command and returns its status and what it printed.
    fn run(&mut self, command: &str) -> Result<(i32, String), String> {
        let gone = |_| "the shell is gone: the page took too long".to_owned();
        // A file and not a pipe, so that what goes on in the background holds nobody up.
        write!(self.input, "{{ {command}\n}} >.printed 2>&1 </dev/null\necho $?\n")
            .map_err(gone)?;
        self.input.flush().map_err(gone)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(gone)?;
        let status =
            answer.trim().parse().map_err(|_no_number| gone(std::io::Error::other(answer)))?;
        let printed = fs::read(self.folder.path().join(".printed")).map_err(|e| e.to_string())?;
        Ok((status, String::from_utf8_lossy(&printed).into_owned()))
    }

    /// Runs a command that has to succeed, and returns what it printed.
    pub(crate) fn must(&mut self, command: &str) -> String {
        let (status, printed) = self.run(command).unwrap_or_else(|why| panic!("{command}: {why}"));
        assert_eq!(status, 0, "$ {command}\n{printed}{}", self.logs());
        printed
    }

    /// Runs a command of the guide and compares.
    fn check(
        &mut self,
        command: &str,
        shown: &str,
        until: bool,
        wanted: i32,
    ) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let (status, printed) = self.run(command)?;
            if status == wanted && wildcard::matches(shown, &printed) {
                return Ok(());
            }
            if !until || begun.elapsed() > UNTIL {
                return Err(format!(
                    "$ {command}\n--- shown, with status {wanted}\n{shown}\
                     --- printed, with status {status}\n{printed}{}",
                    self.logs()
                ));
            }
            self.run("sleep 0.1")?;
        }
    }

    /// Returns the ends of the page's logs, for who has to find out what went wrong.
    fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "log") {
                let log = fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines.get(lines.len().saturating_sub(25)..).unwrap_or_default();
                text += &format!("\n--- {}\n{}\n", entry.path().display(), end.join("\n"));
            }
        }
        text
    }

    fn take(&mut self, block: &Block) -> Result<(), String> {
        let kind = block.kind()?;
        let file = block.file().unwrap_or(match kind {
            Kind::Sync => "checked.hcl",
            _ => "",
        });
        if !file.is_empty() {
            write(&self.folder.path().join(file), &block.text);
        }
        match kind {
            Kind::Console { until, status } => {
                let commands = block.commands();
                let last = commands.len().saturating_sub(1);
                for (at, (command, shown)) in commands.iter().enumerate() {
                    let wanted = if at == last { status } else { 0 };
                    self.check(command, shown, until, wanted)?;
                }
                Ok(())
            }
            Kind::Sync => {
                let validate = format!("consul-terraform-sync validate -config-file={file}");
                self.check(&validate, "...", false, 0)
            }
            Kind::Ecs => checks::ecs(&block.text),
            Kind::Dependencies => checks::dependencies(&block.text),
            Kind::Rust | Kind::File | Kind::Text => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // With its first process the namespace ends, and whatever runs in it.
        drop(self.shell.kill());
        drop(self.shell.wait());
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the real programs that a page needs beside ours.
fn parts(page: &Page) -> Vec<&'static str> {
    let mut parts = vec!["consul", "tofu"];
    let calls = |name: &str| page.blocks.iter().any(|block| block.text.contains(name));
    for name in ["bao", "envoy"] {
        if calls(&format!("$ {name} ")) {
            parts.push(name);
        }
    }
    parts
}

fn run(page: &Page) -> Result<(), String> {
    let Some(path) = programs::path(&parts(page), &page.name) else { return Ok(()) };
    let mut session = Session::start(&path);
    for block in &page.blocks {
        session.take(block).map_err(|why| format!("{}:{}: {why}", page.name, block.line))?;
    }
    Ok(())
}

/// Returns `true` if a network and processes of one's own can be had here.
pub(crate) fn can_unshare() -> bool {
    unshare().args(["ip", "link", "set", "lo", "up"]).status().is_ok_and(|done| done.success())
}

/// `GUIDE_PAGE=operators/start.md` runs that page alone.
#[test]
fn every_page_does_what_it_shows() {
    let case = "session::every_page_does_what_it_shows";
    if !can_unshare() {
        SUITE.missing("unshare", case, "no network namespace can be made here");
        return;
    }
    let only = std::env::var("GUIDE_PAGE").ok();
    let mut wanted = pages();
    wanted.retain(|page| only.as_ref().is_none_or(|only| *only == page.name));
    assert!(!wanted.is_empty(), "no page {only:?}");
    let wanted = std::sync::Mutex::new(wanted.into_iter());
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = wanted.lock().unwrap().next();
                    let Some(page) = next else { break };
                    if let Err(why) = run(&page) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
