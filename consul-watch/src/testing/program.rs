//! `Program`: a child process that ends with its handle, also when the test's process is killed.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

#[cfg(target_os = "linux")]
use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

/// Runs the program so that it cannot outlive its parent: a watchdog in its
/// process group reads a pipe that only the parent holds open. When the
/// parent is gone it removes the data too; stopping the program on purpose
/// ends the watchdog first.
const WATCHDOG: &str =
    r#"exec 3<&0 </dev/null; (read -r _ <&3; kill -9 $$; rm -rf "$0") & exec "$@" 3<&-"#;

/// A server that a test has started, in a process group of its own.
///
/// Dropping it kills it; the same happens when the test's process ends in any way.
#[derive(Debug)]
pub struct Program {
    process: Child,
    /// Closing it wakes the watchdog.
    _lifeline: Option<ChildStdin>,
}

impl Program {
    /// Starts a program; what it prints goes to the end of `log`. Its `folder` is removed when the
    /// test's process ends without dropping it.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened, or the machine starts no process. A program that is not
    /// there [has ended](Program::has_ended) at once.
    pub fn start<I, A>(program: &Path, arguments: I, folder: &Path, log: &Path) -> io::Result<Self>
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        let log = File::options().create(true).append(true).open(log)?;
        let mut process = Command::new("sh")
            .args(["-c", WATCHDOG])
            .arg(folder)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let lifeline = process.stdin.take();
        Ok(Self { process, _lifeline: lifeline })
    }

    /// Returns `true` if it runs no more.
    ///
    /// # Errors
    ///
    /// When the machine does not say.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Stops its execution until [`Program::resume`], as a machine that stalls would. Returns when
    /// all its threads stand still (Linux; elsewhere when the signal is sent). Its watchdog goes
    /// on, so it cannot outlive its parent in this state either.
    pub fn pause(&self) {
        self.signal_alone(Signal::SIGSTOP);
        #[cfg(target_os = "linux")]
        self.wait_until_stopped();
    }

    /// Waits until the process has stopped, or has ended.
    #[cfg(target_os = "linux")]
    fn wait_until_stopped(&self) {
        let Ok(process) = i32::try_from(self.process.id()) else { return };
        // `kill` returns before the signal takes effect: on a busy machine other threads go on,
        // and answer, until the one that was chosen to take the signal is scheduled. The kernel
        // reports the stop when the last thread has stopped. WNOWAIT leaves the exit status,
        // if that is what there is, to `process`.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(Pid::from_raw(process)), flags) == Err(Errno::EINTR) {}
    }

    /// Lets it go on after [`Program::pause`].
    pub fn resume(&self) {
        self.signal_alone(Signal::SIGCONT);
    }

    fn signal_alone(&self, signal: Signal) {
        if let Ok(process) = i32::try_from(self.process.id())
            && let Err(error) = kill(Pid::from_raw(process), signal)
        {
            tracing::debug!(%error, "the process is gone already");
        }
    }

    /// Signals the whole process group, so that nothing of it stays behind.
    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.process.id())
            && let Err(error) = killpg(Pid::from_raw(group), signal)
        {
            tracing::debug!(%error, "the process is gone already");
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        // Reaps it; a killed process ends at once.
        drop(self.process.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State letter of the process, as `proc_pid_stat(5)` shows it after the name in parentheses.
    #[cfg(target_os = "linux")]
    fn state(process: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, after) = stat.rsplit_once(") ").unwrap();
        after.chars().next().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_paused_program_stands_still_when_the_call_returns() {
        let folder = tempfile::tempdir().unwrap();
        let busy = ["-c", "while :; do :; done"];
        let log = folder.path().join("log");
        let program = Program::start(Path::new("sh"), busy, folder.path(), &log).unwrap();
        for round in 0..200 {
            program.pause();
            assert_eq!(state(program.process.id()), 'T', "in round {round}");
            program.resume();
        }
    }

    #[test]
    fn pausing_what_has_ended_returns() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut program = Program::start(Path::new("true"), [""; 0], folder.path(), &log).unwrap();
        while !program.has_ended().unwrap() {
            std::thread::yield_now();
        }
        program.pause();
        assert!(program.has_ended().unwrap());
    }
}
