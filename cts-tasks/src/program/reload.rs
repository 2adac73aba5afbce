//! Reads the configuration again when the operator says so.

use std::{convert::Infallible, io};

use crate::{Daemon, Diagnostic, Severity};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::program::{Program, arguments::ConfigurationFlags, validate};

/// The signal that asks for it, caught from now on.
pub(crate) struct Hangups(Signal);

impl Hangups {
    pub(crate) fn catch() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Takes over the tasks of the files at each signal. A configuration with
    /// mistakes changes nothing, and the log has all of them.
    pub(crate) async fn reload(
        mut self,
        program: &Program,
        daemon: &Daemon,
        files: &ConfigurationFlags,
    ) -> Infallible {
        loop {
            if self.0.recv().await.is_none() {
                return std::future::pending().await;
            }
            tracing::info!(signal = "SIGHUP", "signal received, reading the configuration again");
            let (program, files) = (program.clone(), files.clone());
            let loading = move || validate::load(&program, &files);
            let loaded = tokio::task::spawn_blocking(loading).await;
            match loaded {
                Ok(Ok(loaded)) => {
                    for warning in &loaded.config.warnings {
                        tracing::warn!("{warning}");
                    }
                    if let Err(error) = daemon.reload(loaded).await {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "the configuration is not reloaded"
                        );
                    }
                }
                Ok(Err(findings)) => refuse(&findings),
                Err(error) => tracing::error!(%error, "the configuration is not reloaded"),
            }
        }
    }
}

fn refuse(findings: &[Diagnostic]) {
    for finding in findings {
        match finding.severity {
            Severity::Error => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
        }
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    tracing::error!(
        errors,
        "the configuration is not reloaded: it cannot be used; the one that was read before counts on"
    );
}
