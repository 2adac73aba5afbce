use std::time::Duration;

use cts_tasks::{
    Daemon, DaemonOptions, Error, Inspection, Stop, StopReason, TaskName,
    config::{Config, Loaded},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    arguments::{ConfigurationFlags, StartFlags},
    complain,
    exit::Exit,
    logging::{self, LogOptions},
    metrics::Metrics,
    reload::Hangups,
    validate,
    wiring::{self, Mode},
};

/// How long a stop may take.
///
/// Source: Consul-Terraform-Sync 0.9, `command/start.go`.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Runs `start` to its end.
pub(crate) fn start(flags: StartFlags, legacy: bool) -> Exit {
    if legacy {
        complain(
            "Warning: running consul-terraform-sync without a command is deprecated; \
             use `consul-terraform-sync start`",
        );
    }
    let loaded = match validate::load(&flags.configuration) {
        Ok(loaded) => loaded,
        Err(findings) => {
            validate::refuse(&findings);
            return Exit::Config;
        }
    };
    let rules = loaded.rules.clone();
    let mode = match (flags.inspect(), flags.once) {
        (true, _) => Mode::Inspect,
        (false, true) => Mode::Once,
        (false, false) => Mode::Daemon,
    };
    let reset = flags.reset_storage;
    let mut daemon_options = match wiring::daemon_options(&loaded.config, rules, mode, reset) {
        Ok(daemon_options) => daemon_options,
        Err(findings) => {
            validate::refuse(&findings);
            return Exit::Config;
        }
    };
    let log = LogOptions {
        level: loaded.config.log_level,
        json: flags.log_json,
        syslog: loaded.config.syslog.as_ref(),
    };
    if let Err(error) = logging::start(&log) {
        complain(&error);
        return Exit::Config;
    }
    for warning in &loaded.config.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            return Exit::Error;
        }
    };
    if loaded.config.api_metrics {
        match Metrics::start() {
            Ok(metrics) => {
                daemon_options.exposition = Some(metrics.exposition());
                runtime.spawn(metrics.keep());
            }
            Err(error) => {
                tracing::error!("{error}");
                return Exit::Error;
            }
        }
    }
    let exit = runtime.block_on(run(loaded, flags, daemon_options));
    // What is still blocked in the system must not hold the process back.
    runtime.shutdown_background();
    exit
}

async fn run(loaded: Loaded, flags: StartFlags, daemon_options: DaemonOptions) -> Exit {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "consul-terraform-sync");
    tracing::debug!(config = ?loaded.config, "configuration");
    let stop = Stop::new();
    let signalled = match on_signal(&stop) {
        Ok(signalled) => signalled,
        Err(error) => {
            tracing::error!(%error, "cannot wait for signals");
            return Exit::Error;
        }
    };
    let work = work(loaded, flags, daemon_options, &stop);
    tokio::pin!(work);
    let exit = tokio::select! {
        exit = &mut work => exit,
        () = async { stop.stopped().await; tokio::time::sleep(SHUTDOWN).await } => {
            tracing::error!("graceful shutdown timed out, exiting");
            Exit::ShutdownTimeout
        }
    };
    signalled.abort();
    exit
}

/// Gives the stop at the first signal to end.
fn on_signal(stop: &Stop) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut quit = signal(SignalKind::quit())?;
    let stop = stop.clone();
    Ok(tokio::spawn(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = quit.recv() => "SIGQUIT",
        };
        tracing::info!(signal = name, "signal received, shutting down");
        stop.stop(StopReason::Shutdown);
    }))
}

async fn work(
    loaded: Loaded,
    flags: StartFlags,
    daemon_options: DaemonOptions,
    stop: &Stop,
) -> Exit {
    let inspected = match task_names(&flags.inspect_tasks, &loaded.config) {
        Ok(names) => names,
        Err(unknown) => {
            tracing::error!("task not found: {unknown}");
            return Exit::Config;
        }
    };
    let daemon = match Daemon::new(loaded.config, loaded.driver, daemon_options) {
        Ok(daemon) => daemon,
        Err(error) => return failed(&error, stop, Exit::Config),
    };
    if let Err(error) = daemon.check_consul(stop).await {
        return failed(&error, stop, Exit::Error);
    }
    if let Err(error) = daemon.start_driver(stop).await {
        return failed(&error, stop, Exit::DriverInstall);
    }
    let done = if flags.inspect() {
        inspect(&daemon, &inspected, stop).await
    } else if flags.once {
        daemon.once(stop).await
    } else {
        Box::pin(serve(&daemon, &flags.configuration, stop)).await
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(error) => failed(&error, stop, Exit::Error),
    }
}

/// Runs until the stop, and takes over tasks of files that were changed.
async fn serve(daemon: &Daemon, files: &ConfigurationFlags, stop: &Stop) -> cts_tasks::Result<()> {
    let hangups = Hangups::catch().map_err(|source| Error::Other {
        operation: "waiting for SIGHUP",
        retryable: false,
        source: source.into(),
    })?;
    tokio::select! {
        done = daemon.run(stop) => done,
        never = hangups.reload(daemon, files) => match never {},
    }
}

async fn inspect(daemon: &Daemon, only: &[TaskName], stop: &Stop) -> cts_tasks::Result<()> {
    let report = |inspection: Inspection| {
        let task = inspection.task.as_str();
        let (changes_present, plan) = match inspection.plan {
            Some(plan) => (!plan.changes.is_empty(), plan.text),
            None => (false, "Task is disabled, inspection was skipped.".to_owned()),
        };
        tracing::info!(task.name = task, changes_present, plan, "inspection results");
    };
    daemon.inspect_each(only, stop, report).await
}

/// The tasks of these names, or the first name that no task has.
fn task_names<'a>(names: &'a [String], config: &Config) -> Result<Vec<TaskName>, &'a str> {
    let find = |name: &'a String| {
        let task = config.tasks.iter().find(|task| task.name.as_str() == name);
        task.map(|task| task.name.clone()).ok_or(name.as_str())
    };
    names.iter().map(find).collect()
}

/// Tells what went wrong, unless it is only that the process was asked to end.
fn failed(error: &Error, stop: &Stop, exit: Exit) -> Exit {
    if matches!(error, Error::Stopped { .. }) && stop.reason().is_some() {
        return Exit::Ok;
    }
    tracing::error!(error = error as &dyn std::error::Error, "error running consul-terraform-sync");
    exit
}
