use std::{ffi::OsString, os::unix::process::ExitStatusExt as _, process::ExitStatus};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::process::{Child as Process, Command};

use crate::{Error, Result};

/// A program in its own process group, with our input and output.
pub(super) struct Child {
    process: Process,
    pid: Pid,
    command: String,
}

impl Child {
    pub(super) fn start(command: &[OsString]) -> Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::input("command is required"));
        };
        let shown = program.to_string_lossy().into_owned();
        let failed = |problem: String| Error::Command { command: shown.clone(), problem };
        let process = Command::new(program)
            .args(arguments)
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let pid = process.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.ok_or_else(|| failed("has no process id".to_owned()))?;
        Ok(Self { process, pid: Pid::from_raw(pid), command: shown })
    }

    /// Waits for the program's end and gives its exit code; after a signal, 128 and its number.
    pub(super) async fn wait(&mut self) -> Result<i32> {
        let status = self.process.wait().await.map_err(|error| Error::Command {
            command: self.command.clone(),
            problem: format!("cannot be waited for: {error}"),
        })?;
        Ok(code(status))
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, signal: Signal) {
        self.sent(signal, kill(self.pid, signal));
    }

    /// Sends a signal to the program and what it started.
    pub(super) fn signal_group(&self, signal: Signal) {
        self.sent(signal, killpg(self.pid, signal));
    }

    fn sent(&self, signal: Signal, result: Result<(), Errno>) {
        match result {
            Ok(()) => tracing::debug!(%signal, command = self.command, "sent signal"),
            Err(error) => {
                tracing::warn!(%signal, command = self.command, %error, "signal was not sent");
            }
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
