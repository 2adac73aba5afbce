//! The child process of an entrypoint: started in its own process group, signalled, waited for.

use std::{ffi::OsString, process::ExitStatus};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use rustix_libc_wrappers::process::SignalExt as _;
use tokio::process::{Child as Process, Command};

use super::SignalNumber;
use crate::{Error, Result};

/// Program in its own process group, with our standard streams.
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
            // A group of its own: signals of the terminal or of ECS reach the child only through
            // us, and can be sent to all its descendants at once.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let pid = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| failed("has no process id".to_owned()))?;
        Ok(Self { process, pid, command: shown })
    }

    /// Waits for the program's end and returns its exit code; 255 if a signal ended it.
    pub(super) async fn wait(&mut self) -> Result<i32> {
        let status = self.process.wait().await.map_err(|error| Error::Command {
            command: self.command.clone(),
            problem: format!("cannot be waited for: {error}"),
        })?;
        Ok(code(status))
    }

    /// Sends a signal to the program alone.
    pub(super) fn signal(&self, signal: SignalNumber) {
        self.sent(signal, kill_process);
    }

    /// Sends a signal to the program's whole process group.
    pub(super) fn signal_group(&self, signal: SignalNumber) {
        self.sent(signal, kill_process_group);
    }

    fn sent(&self, signal: SignalNumber, send: fn(Pid, Signal) -> Result<(), Errno>) {
        let sent = Signal::from_raw(signal.get()).ok_or(Errno::INVAL);
        match sent.and_then(|sent| send(self.pid, sent)) {
            Ok(()) => tracing::debug!(%signal, command = self.command, "sent signal"),
            // Usually the child has just ended; `wait` reports that.
            Err(error) => {
                tracing::warn!(%signal, command = self.command, %error, "signal was not sent");
            }
        }
    }
}

/// Exit code that stands for a program that a signal ended.
///
/// Source: consul-ecs 0.10 `entrypoint/entrypoint.go` exits with Go's -1.
const SIGNALED: i32 = 255;

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(SIGNALED)
}
