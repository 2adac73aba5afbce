use std::{ffi::OsString, process::ExitStatus};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use rustix_libc_wrappers::process::SignalExt as _;
use tokio::process::{Child as Process, Command};

use super::SignalNumber;
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
        let pid = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| failed("has no process id".to_owned()))?;
        Ok(Self { process, pid, command: shown })
    }

    /// Waits for the program's end and gives its exit code; 255 after a signal.
    pub(super) async fn wait(&mut self) -> Result<i32> {
        let status = self.process.wait().await.map_err(|error| Error::Command {
            command: self.command.clone(),
            problem: format!("cannot be waited for: {error}"),
        })?;
        Ok(code(status))
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, signal: SignalNumber) {
        self.sent(signal, kill_process);
    }

    /// Sends a signal to the program and what it started.
    pub(super) fn signal_group(&self, signal: SignalNumber) {
        self.sent(signal, kill_process_group);
    }

    fn sent(&self, signal: SignalNumber, send: fn(Pid, Signal) -> Result<(), Errno>) {
        let sent = Signal::from_raw(signal.get()).ok_or(Errno::INVAL);
        match sent.and_then(|sent| send(self.pid, sent)) {
            Ok(()) => tracing::debug!(%signal, command = self.command, "sent signal"),
            Err(error) => {
                tracing::warn!(%signal, command = self.command, %error, "signal was not sent");
            }
        }
    }
}

/// Exit code of a program that a signal ended.
///
/// Source: consul-ecs 0.10 `entrypoint/entrypoint.go` exits with Go's -1.
const SIGNALED: i32 = 255;

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(SIGNALED)
}
