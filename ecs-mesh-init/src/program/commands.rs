//! The subcommands: each reads its settings, and runs until it is done or stopped.

use std::{
    ffi::OsString, future::Future, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use crate::{
    Config, ControlPlane, MeshInit, Result, Vars,
    config::{CONFIG_VARIABLE, Generation, LogLevel},
    entrypoint::{
        AppOptions, Arguments, SignalNumber, SystemSignals, no_arguments, run_app, run_envoy,
    },
    mesh_init::own_program,
    metadata::{HttpTaskMetadata, Task, TaskMetadata},
    net_dial::net_dial,
};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Failure, Program, logging, print, usage};

impl Program {
    /// Runs the command that the process was started with, to its end.
    pub fn run(self) -> ExitCode {
        let mut arguments = std::env::args_os().skip(1);
        let subcommand = arguments.next().map(|name| name.to_string_lossy().into_owned());
        match run(&self, subcommand.as_deref(), arguments.collect()) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => {
                failure.tell();
                ExitCode::from(failure.code())
            }
        }
    }
}

/// Runs a subcommand and gives its exit code.
fn run(
    program: &Program,
    subcommand: Option<&str>,
    arguments: Vec<OsString>,
) -> Result<u8, Failure> {
    let help = subcommand.and_then(|command| usage::of(program, command));
    if let (Some(help), Some(first)) = (help, arguments.first())
        && usage::is_asked_for(&first.to_string_lossy())
    {
        print(help);
        return Ok(0);
    }
    match subcommand {
        Some("mesh-init") => {
            let mesh = task(&arguments, Config::from_mesh_init_flags)?;
            until_terminated(|stop| async move { mesh?.run(stop).await })
        }
        Some("health-sync") => {
            let mesh = task(&arguments, Config::from_health_sync_flags)?;
            until_terminated(|stop| async move { mesh?.health_sync(&stop).await?.run(stop).await })
        }
        Some("control-plane") => {
            let arguments = texts(&arguments);
            let config = no_arguments(&arguments)
                .and_then(|()| Config::of_control_plane(|name| std::env::var(name).ok()));
            let mesh = started(config)?;
            until_terminated(|stop| async move { ControlPlane::new(mesh?).run(stop).await })
        }
        Some("envoy-entrypoint") => entrypoint(arguments, true),
        Some("app-entrypoint") => entrypoint(arguments, false),
        Some("net-dial") => {
            logging::start(LogLevel::default());
            let result = runtime()?.block_on(net_dial(&texts(&arguments)));
            result.map_err(|error| Failure::early(&error))
        }
        Some("version" | "-version" | "--version") => {
            print(&format!("v{}", program.version));
            Ok(0)
        }
        Some(argument) if usage::is_asked_for(argument) => {
            print(&usage::all(program));
            Ok(0)
        }
        None => Err(Failure::UnknownCommand(usage::all(program))),
        Some(other) => match program.owner(other) {
            Some(owner) => owner.run(other, &arguments),
            None => Err(Failure::UnknownCommand(format!(
                "unknown command: {other}\n\n{}",
                usage::all(program)
            ))),
        },
    }
}

fn texts(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Early(format!("cannot start: {error}")))
}

fn vars() -> Vars {
    Arc::new(|name| std::env::var(name).ok())
}

/// The task that flags describe, as of 0.1 and 0.2, or the environment. What is wrong with the
/// configuration is printed before there is a log; what is missing besides is in the log.
fn task(
    arguments: &[OsString],
    of_flags: fn(&[String]) -> Result<Config>,
) -> Result<Result<MeshInit>, Failure> {
    let arguments = texts(arguments);
    let config = if arguments.first().is_some_and(|first| first.starts_with('-')) {
        of_flags(&arguments)
    } else {
        no_arguments(&arguments).and_then(|()| Config::from_vars(|name| std::env::var(name).ok()))
    };
    started(config)
}

fn started(config: Result<Config>) -> Result<Result<MeshInit>, Failure> {
    let config = config.map_err(|error| Failure::early(&error))?;
    logging::start(config.log_level);
    Ok(connected(config))
}

fn connected(config: Config) -> Result<MeshInit> {
    let vars = vars();
    let metadata = Arc::new(HttpTaskMetadata::from_vars(&*vars)?);
    let mesh = MeshInit::new(config, metadata, vars, program());
    #[cfg(feature = "iam-auth")]
    let mesh = with_aws(mesh)?;
    Ok(mesh)
}

/// With bearer tokens, if there is to be a login.
#[cfg(feature = "iam-auth")]
fn with_aws(mut mesh: MeshInit) -> Result<MeshInit> {
    if mesh.config.login().is_some() {
        let tokens = crate::login::AwsBearerTokens::new(Arc::clone(&mesh.vars))?;
        mesh.bearer_tokens = Some(Arc::new(tokens));
    }
    Ok(mesh)
}

fn program() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let first = std::env::args_os().next().unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    own_program(executable, first.as_ref(), &path)
}

/// Runs `work` in a runtime of its own until it is done, with a stop that SIGTERM and
/// SIGINT cancel; gives the exit code 0.
///
/// # Errors
///
/// The work's, or that signals cannot be waited for.
pub fn until_terminated<F, E>(work: impl FnOnce(CancellationToken) -> F) -> Result<u8, Failure>
where
    F: Future<Output = Result<(), E>>,
    Failure: From<E>,
{
    runtime()?.block_on(async {
        let stop = CancellationToken::new();
        let work = work(stop.clone());
        tokio::pin!(work);
        let mut signals = SystemSignals::new()?;
        loop {
            use crate::entrypoint::Signals as _;
            tokio::select! {
                result = &mut work => return result.map(|()| 0).map_err(Failure::from),
                signal = signals.next() => {
                    if [SignalNumber::TERM, SignalNumber::INT].contains(&signal) {
                        tracing::info!("received {signal}");
                        stop.cancel();
                    }
                }
            }
        }
    })
}

fn entrypoint(arguments: Vec<OsString>, is_proxy: bool) -> Result<u8, Failure> {
    let arguments = Arguments::parse(arguments).map_err(|error| Failure::early(&error))?;
    logging::start(arguments.log_level);
    let command = &arguments.command;
    let code = runtime()?.block_on(async {
        let mut signals = SystemSignals::new()?;
        if is_proxy {
            let period = Duration::from_secs(1);
            run_envoy(command, generation(), &LateMetadata, period, &mut signals).await
        } else {
            let options = AppOptions::after(arguments.shutdown_delay);
            run_app(command, options, &mut signals).await
        }
    })?;
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Metadata that is looked for when it is asked for: a proxy runs whether it is there or not.
#[derive(Debug)]
struct LateMetadata;

#[async_trait]
impl TaskMetadata for LateMetadata {
    async fn task(&self) -> Result<Task> {
        HttpTaskMetadata::from_vars(|name| std::env::var(name).ok())?.task().await
    }
}

/// Returns the generation, which decides which containers belong to the mesh;
/// without a configuration the current one is meant.
fn generation() -> Generation {
    let text = std::env::var(CONFIG_VARIABLE).unwrap_or_default();
    Config::parse(&text).map(|config| config.generation).unwrap_or_default()
}
