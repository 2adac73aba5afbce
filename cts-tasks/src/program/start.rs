//! The daemon: its start, its signals and its end.

use std::{sync::Arc, time::Duration};

use crate::{
    ClusterSettings, Daemon, DaemonOptions, Diagnostic, Engine, Error, Inspection, MemoryStore,
    Stop, StopReason, TaskName,
    config::{Config, Loaded},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use crate::program::{
    Program,
    arguments::{ConfigurationFlags, StartFlags},
    complain,
    exit::Exit,
    logging::{self, LogOptions},
    metrics::Metrics,
    notify,
    reload::Hangups,
    validate,
};

/// Time that a stop may take in which no task runs.
///
/// Source: Consul-Terraform-Sync 0.9, `command/start.go`.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Time between the end of all patience and the end of the process, in which what
/// was killed is recorded.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Descriptors that are asked for at most; more are only slow to close for children.
const DESCRIPTORS: u64 = 65_536;

/// Runs `start` to its end.
pub(crate) fn start(program: &Program, flags: StartFlags, legacy: bool) -> Exit {
    if legacy {
        let name = program.name;
        complain(&format!(
            "Warning: running {name} without a command is deprecated; use `{name} start`"
        ));
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the runtime: {error}"));
            return Exit::Error;
        }
    };
    // Before anything else, so that a signal that comes early does not end the process.
    let hangups = if flags.inspect() || flags.once {
        None
    } else {
        let _within = runtime.enter();
        match Hangups::catch() {
            Ok(hangups) => Some(hangups),
            Err(error) => {
                complain(&format!("cannot wait for SIGHUP: {error}"));
                return Exit::Error;
            }
        }
    };
    let loaded = match validate::load(program, &flags.configuration) {
        Ok(loaded) => loaded,
        Err(findings) => {
            validate::refuse(&findings);
            return Exit::Config;
        }
    };
    let mode = match (flags.inspect(), flags.once) {
        (true, _) => Mode::Inspect,
        (false, true) => Mode::Once,
        (false, false) => Mode::Daemon,
    };
    let reset = flags.reset_storage;
    let mut daemon_options = match daemon_options(program, &loaded, mode, reset) {
        Ok(daemon_options) => daemon_options,
        Err(findings) => {
            validate::refuse(&findings);
            return Exit::Config;
        }
    };
    let log = LogOptions {
        level: loaded.config.log_level,
        targets: &program.log_targets,
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
    raise_descriptors();
    #[cfg(feature = "ui")]
    {
        daemon_options.pages = Some(crate::status_page());
    }
    if loaded.config.api_metrics {
        match Metrics::start(program.version) {
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
    let exit = runtime.block_on(run(program, loaded, flags, daemon_options, hangups));
    // What is still blocked in the system must not hold the process back.
    runtime.shutdown_background();
    exit
}

/// The mode in which the process starts, as far as its cluster matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// To run until it is stopped.
    Daemon,
    /// To run every task once.
    Once,
    /// To look, which no other instance needs to know of.
    Inspect,
}

/// Collects the daemon's options beside its configuration.
///
/// `reset_storage` is the flag of that name: stored tasks give way to those of
/// the files.
///
/// # Errors
///
/// When flags and configuration do not go together.
fn daemon_options(
    program: &Program,
    loaded: &Loaded,
    mode: Mode,
    reset_storage: bool,
) -> Result<DaemonOptions, Vec<Diagnostic>> {
    let mut options = DaemonOptions::of(loaded);
    let config = &loaded.config;
    if mode == Mode::Inspect {
        // A running daemon has the store; what is only looked at is kept nowhere.
        options.engine.store = Arc::new(MemoryStore::default());
    }
    let cluster = match &program.cluster {
        Some(cluster) if cluster.is_configured(config)? => cluster,
        _ => {
            if reset_storage {
                return Err(vec![
                    Diagnostic::error(
                        "-reset-storage: there is no stored state to reset without high \
                         availability",
                    )
                    .help("leave the flag out, or configure a high_availability block"),
                ]);
            }
            return Ok(options);
        }
    };
    match mode {
        _ if config.storage.is_some() => {
            return Err(vec![
                Diagnostic::error("storage and high_availability cannot be used together")
                    .help("leave out one of the blocks: a cluster keeps its state in Consul"),
            ]);
        }
        Mode::Inspect => {}
        Mode::Once => {
            return Err(vec![
                Diagnostic::error("once mode is not supported with high availability")
                    .help("leave out -once, or the high_availability block"),
            ]);
        }
        Mode::Daemon => {
            cluster.join(config, ClusterSettings { reset_storage }, &mut options)?;
        }
    }
    Ok(options)
}

/// Raises the soft limit of descriptors to the hard one, as programs in Go do: the
/// API's connections and the work share them.
fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = hard.min(DESCRIPTORS);
        if soft >= wanted {
            return Ok(());
        }
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
        tracing::debug!(before = soft, now = wanted, "raised the limit of descriptors");
        Ok(())
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of descriptors");
    }
}

async fn run(
    program: &Program,
    loaded: Loaded,
    flags: StartFlags,
    daemon_options: DaemonOptions,
    hangups: Option<Hangups>,
) -> Exit {
    tracing::info!(version = program.version, "{}", program.name);
    tracing::debug!(config = ?loaded.config, "configuration");
    let stop = Stop::new();
    let signalled = match on_signal(&stop) {
        Ok(signalled) => signalled,
        Err(error) => {
            tracing::error!(%error, "cannot wait for signals");
            return Exit::Error;
        }
    };
    let patience = loaded.config.shutdown_timeout;
    let running = Running::default();
    let work = work(program, loaded, flags, daemon_options, hangups, &running, &stop);
    tokio::pin!(work);
    let exit = tokio::select! {
        exit = &mut work => exit,
        () = out_of_patience(&stop, &running, patience) => {
            tracing::error!("graceful shutdown timed out, exiting");
            Exit::ShutdownTimeout
        }
    };
    signalled.abort();
    exit
}

/// The engine, as soon as there is one, to see whether a task runs.
type Running = std::sync::OnceLock<Engine>;

/// Waits until the stop has taken too long. While a task runs it has
/// `shutdown_timeout`; then, or at a second signal, it has to end at once.
async fn out_of_patience(stop: &Stop, running: &Running, patience: Duration) {
    stop.stopped().await;
    let begun = Instant::now();
    tokio::select! {
        () = tokio::time::sleep(SHUTDOWN) => {}
        () = stop.urgent() => {}
    }
    let runs = || running.get().is_some_and(Engine::is_running_a_task);
    while runs() && !stop.is_urgent() && begun.elapsed() < patience {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.urgent() => {}
        }
    }
    if runs() {
        tracing::warn!("a task still runs and is ended now");
        stop.stop_now(StopReason::Shutdown);
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// Interval between two looks at whether a task still runs.
const LOOK: Duration = Duration::from_millis(200);

/// Gives the stop at the first signal to end, and makes it urgent at the second.
fn on_signal(stop: &Stop) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut quit = signal(SignalKind::quit())?;
    let stop = stop.clone();
    Ok(tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
                _ = quit.recv() => "SIGQUIT",
            };
            if stop.reason().is_none() {
                tracing::info!(signal = name, "signal received, shutting down");
                stop.stop(StopReason::Shutdown);
            } else {
                tracing::warn!(signal = name, "second signal received, ending at once");
                stop.stop_now(StopReason::Shutdown);
            }
        }
    }))
}

async fn work(
    program: &Program,
    loaded: Loaded,
    flags: StartFlags,
    daemon_options: DaemonOptions,
    hangups: Option<Hangups>,
    running: &Running,
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
        Err(error) => return failed(program, &error, stop, Exit::Config),
    };
    let _first = running.set(daemon.engine().clone());
    if let Err(error) = daemon.check_consul(stop).await {
        return failed(program, &error, stop, Exit::Error);
    }
    if let Err(error) = daemon.start_driver(stop).await {
        return failed(program, &error, stop, Exit::DriverInstall);
    }
    let done = if flags.inspect() {
        inspect(&daemon, &inspected, stop).await
    } else if flags.once {
        daemon.once(stop).await
    } else {
        Box::pin(serve(program, &daemon, hangups, &flags.configuration, stop)).await
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(error) => failed(program, &error, stop, Exit::Error),
    }
}

/// Runs until the stop, and takes over tasks of files that were changed, also for a
/// signal that came before it was ready.
async fn serve(
    program: &Program,
    daemon: &Daemon,
    hangups: Option<Hangups>,
    files: &ConfigurationFlags,
    stop: &Stop,
) -> crate::Result<()> {
    let Some(hangups) = hangups else { return daemon.run(stop).await };
    let manager = notify::Manager::from_env();
    tokio::select! {
        done = daemon.run(stop) => done,
        never = manager.attend(daemon.serving(), stop) => match never {},
        never = hangups.reload(program, daemon, files) => match never {},
    }
}

async fn inspect(daemon: &Daemon, only: &[TaskName], stop: &Stop) -> crate::Result<()> {
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
fn failed(program: &Program, error: &Error, stop: &Stop, exit: Exit) -> Exit {
    if matches!(error, Error::Stopped { .. }) && stop.reason().is_some() {
        return Exit::Ok;
    }
    tracing::error!(error = error as &dyn std::error::Error, "error running {}", program.name);
    exit
}
