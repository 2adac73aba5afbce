//! The entrypoint of the application's container, which delays the end of the application until the
//! mesh sends it no more requests.

use std::{ffi::OsString, time::Duration};

use tokio::time::sleep;

use super::{SignalNumber, Signals, child::Child};
use crate::Result;

/// Shutdown settings of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AppOptions {
    /// Time between the first `SIGTERM` and the moment it is passed on, for requests that still
    /// arrive through the mesh.
    ///
    /// Default zero, which never passes that `SIGTERM` on, as upstream: the application is expected
    /// to end by itself.
    pub shutdown_delay: Duration,
}

impl AppOptions {
    /// Creates options with a delay.
    pub fn after(shutdown_delay: Duration) -> Self {
        Self { shutdown_delay }
    }
}

/// Runs the application and returns its exit code.
///
/// The first `SIGTERM` waits for the delay and then goes to the application's process group; every
/// other signal is passed on at once.
///
/// # Errors
///
/// [`Error::Input`](crate::Error::Input) without a command, [`Error::Command`](crate::Error::Command)
/// when it cannot be started.
///
/// Source: consul-ecs 0.10 `subcommand/app-entrypoint/command.go`.
pub async fn run_app(
    command: &[OsString],
    options: AppOptions,
    signals: &mut dyn Signals,
) -> Result<i32> {
    let mut child = Child::start(command)?;
    let mut terminated = false;
    // Armed by the first SIGTERM. A sleep that never ends keeps the branch below simple.
    let delay = sleep(Duration::MAX);
    tokio::pin!(delay);
    loop {
        tokio::select! {
            code = child.wait() => return code,
            signal = signals.next() => {
                if signal == SignalNumber::TERM && !terminated {
                    terminated = true;
                    tracing::info!(delay_s = options.shutdown_delay.as_secs(), "received SIGTERM");
                    if !options.shutdown_delay.is_zero() {
                        delay.set(sleep(options.shutdown_delay));
                    }
                // Also a second SIGTERM, as upstream does.
                } else {
                    child.signal(signal);
                }
            }
            () = &mut delay => {
                // The whole group: a shell as the first process would not pass the signal to its
                // children.
                child.signal_group(SignalNumber::TERM);
                delay.set(sleep(Duration::MAX));
            }
        }
    }
}
