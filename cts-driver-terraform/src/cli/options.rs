//! How commands are run.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use cts_tasks::StopReason;

/// Options of the commands: where the binary is, its environment, its logs, its end.
#[derive(Clone)]
#[non_exhaustive]
pub struct CliOptions {
    /// The directory that holds the binary; without one it is looked up in
    /// the `PATH` of `environment`.
    pub path: Option<PathBuf>,
    /// Environment that the commands inherit: this process's by default.
    pub environment: Vec<(OsString, OsString)>,
    /// `true` if the tool's output is logged; `false` by default.
    pub log: bool,
    /// `true` if the tool writes a trace of its own to `terraform.log`; `false` by default.
    pub persist_log: bool,
    /// The longest time between the interrupt and the kill, whatever the reason
    /// for the stop; without it, [`CliOptions::grace`] decides by the reason.
    pub fixed_grace: Option<Duration>,
    /// Installs the binary where none is found; none by default.
    #[cfg(feature = "download")]
    pub installer: Option<crate::Installer>,
}

impl Default for CliOptions {
    fn default() -> Self {
        Self {
            path: None,
            environment: std::env::vars_os().collect(),
            log: false,
            persist_log: false,
            fixed_grace: None,
            #[cfg(feature = "download")]
            installer: None,
        }
    }
}

impl CliOptions {
    /// Time from the interrupt to the kill. 5 s when leadership is lost, because
    /// another process acts soon. `None` for every other reason: the command finishes the
    /// resource that it is at, until the stop is made urgent. The engine does that after
    /// `shutdown_timeout`, the deployment's at a shutdown and the task's or half a minute at the
    /// task's `timeout`.
    pub fn grace(&self, reason: StopReason) -> Option<Duration> {
        self.fixed_grace.or(match reason {
            StopReason::LeadershipLost => Some(Duration::from_secs(5)),
            _ => None,
        })
    }
}

impl fmt::Debug for CliOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CliOptions")
            .field("path", &self.path)
            .field("log", &self.log)
            .field("persist_log", &self.persist_log)
            .finish_non_exhaustive()
    }
}
