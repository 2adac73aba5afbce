use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use cts_tasks::StopReason;

/// How commands are run.
#[derive(Clone)]
#[non_exhaustive]
pub struct CliOptions {
    /// The directory that holds the binary; without one it is looked up in
    /// the `PATH` of `environment`.
    pub path: Option<PathBuf>,
    /// What the commands inherit: this process's environment by default.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether what the tool prints is logged; off by default.
    pub log: bool,
    /// Whether the tool writes a trace of its own to `terraform.log`; off by default.
    pub persist_log: bool,
    /// The time between the interrupt and the kill, whatever the reason for the
    /// stop; without it, [`CliOptions::grace`] decides by the reason.
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
    /// How long an interrupted command may take to end: 4 s at a shutdown, so
    /// that the process ends within its 10 s after the engine's 5 s of grace; 5 s when leadership is lost,
    /// because another process acts soon; half a minute otherwise.
    pub fn grace(&self, reason: StopReason) -> Duration {
        self.fixed_grace.unwrap_or(match reason {
            StopReason::Shutdown => Duration::from_secs(4),
            StopReason::LeadershipLost => Duration::from_secs(5),
            _ => Duration::from_secs(30),
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
