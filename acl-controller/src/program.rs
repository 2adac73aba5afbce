//! The commands of `consul-ecs` for its controllers: each as a daemon, as a dry run, and as a
//! last clean-up.

mod arguments;
mod election;
mod environment;
mod failure;
mod metering;
mod usage;

use std::{ffi::OsString, sync::Arc};

use consul_watch::Client;
use ecs_mesh_init::{
    Config,
    config::{CONFIG_VARIABLE, Generation, LogLevel},
    entrypoint::no_arguments,
    program::{Commands, Failure, print, start_log, until_terminated},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Controller, LoginTokenSettings, LoginTokens, Reconciler, Registration, Report,
    ServiceTokenSettings, ServiceTokens, TokenRights, partition,
};
use arguments::Flags;
use environment::Environment;
use failure::logged;

/// The controller to run: from the flags of the early versions, or from a
/// configuration.
enum Command {
    Early(Flags),
    Current(Box<Config>),
}

/// The work of a controller's process.
#[derive(Clone, Copy)]
enum Mode {
    Run,
    DryRun,
    Cleanup { force: bool, dry_run: bool },
}

/// The commands `acl-controller`, `controller`, `dry-run` and `cleanup`, for a
/// [`ecs_mesh_init::program::Program`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Controllers;

impl Commands for Controllers {
    fn list(&self) -> &'static str {
        usage::LIST
    }

    fn help(&self, command: &str) -> Option<&'static str> {
        usage::of(command)
    }

    fn run(&self, command: &str, arguments: &[OsString]) -> Result<u8, Failure> {
        run(command, arguments)
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        logged(&error)
    }
}

fn run(name: &str, arguments: &[OsString]) -> Result<u8, Failure> {
    let (mode, command) = match name {
        "dry-run" => (Mode::DryRun, Command::parse_next(arguments)),
        "cleanup" => {
            let (mode, rest) = cleanup_flags(arguments);
            (mode, Command::parse_next(rest))
        }
        _ => (Mode::Run, Command::parse(name, arguments)),
    };
    let command = command.map_err(Failure::Early)?;
    start_log(command.log_level());
    until_terminated(|stop| perform(mode, command, stop))
}

fn cleanup_flags(arguments: &[OsString]) -> (Mode, &[OsString]) {
    let (mut force, mut dry_run, mut rest) = (false, false, arguments);
    while let Some((first, behind)) = rest.split_first() {
        match first.to_str() {
            Some("-force" | "--force") => force = true,
            Some("-dry-run" | "--dry-run") => dry_run = true,
            _ => break,
        }
        rest = behind;
    }
    (Mode::Cleanup { force, dry_run }, rest)
}

impl Command {
    fn parse_next(arguments: &[OsString]) -> Result<Self, String> {
        match arguments.split_first() {
            Some((name, rest)) => Self::parse(&name.to_string_lossy(), rest),
            None => Err("which controller? acl-controller or controller".to_owned()),
        }
    }

    fn parse(name: &str, arguments: &[OsString]) -> Result<Self, String> {
        match name {
            "acl-controller" => {
                let flags = Flags::parse(arguments)?;
                if flags.partition.as_ref().is_some_and(|it| !it.is_empty())
                    && !flags.partitions_enabled
                {
                    return Err("partition flag provided without partitions-enabled flag".into());
                }
                Ok(Self::Early(flags))
            }
            "controller" => {
                let texts: Vec<String> =
                    arguments.iter().map(|it| it.to_string_lossy().into_owned()).collect();
                let told = |error: ecs_mesh_init::Error| consul_watch::error_chain(&error);
                no_arguments(&texts).map_err(told)?;
                let config = Config::from_vars(|name| std::env::var(name).ok()).map_err(told)?;
                if config.generation == Generation::Early {
                    return Err(format!(
                        "{CONFIG_VARIABLE} has no \"consulServers\", which this controller works for"
                    ));
                }
                let controller = config.controller.clone().unwrap_or_default();
                if !controller.partition.is_empty() && !controller.partitions_enabled {
                    return Err("`config.controller.partition` provided without setting \
                                `config.controller.partitionEnabled = true`"
                        .to_owned());
                }
                Ok(Self::Current(Box::new(config)))
            }
            other => Err(format!("{other:?} is no controller; acl-controller or controller is")),
        }
    }

    fn log_level(&self) -> LogLevel {
        match self {
            Self::Early(flags) => flags.log_level,
            Self::Current(config) => config.log_level,
        }
    }

    async fn reconciler(
        &self,
        environment: &Environment,
        client: &Client,
    ) -> Result<Arc<dyn Reconciler>, Failure> {
        let aws = environment.aws().await?;
        let consul = Arc::new(client.clone());
        match self {
            Self::Early(flags) if flags.keeps_secrets() => {
                let cluster = environment.cluster()?;
                let prefix = flags.secret_prefix.clone().unwrap_or_default();
                let mut settings = ServiceTokenSettings::new(&cluster, prefix);
                settings.client_secret.clone_from(&flags.client_secret);
                settings.partition = of_flags(flags)?;
                if flags.service_identities {
                    settings.rights = TokenRights::ServiceIdentity;
                }
                let (tasks, secrets) = (Arc::new(aws.tasks(cluster)), Arc::new(aws.secrets()));
                Ok(Arc::new(ServiceTokens::new(consul, tasks, secrets, settings)?))
            }
            Self::Early(flags) => {
                let cluster = environment.cluster_arn()?;
                let mut settings = LoginTokenSettings::new(&cluster, environment.address());
                settings.iam_role_path = flags.iam_role_path.clone().unwrap_or_default();
                settings.partition = of_flags(flags)?;
                settings.registration = Registration::Clients;
                let tasks = Arc::new(aws.tasks(cluster));
                Ok(Arc::new(LoginTokens::new(consul, tasks, settings)?))
            }
            Self::Current(config) => {
                let cluster = environment.cluster_arn()?;
                let controller = config.controller.clone().unwrap_or_default();
                let mut settings = LoginTokenSettings::new(&cluster, environment.address());
                settings.iam_role_path = controller.iam_role_path;
                settings.partition =
                    partition(controller.partitions_enabled, &controller.partition)?;
                let tasks = Arc::new(aws.tasks(cluster));
                Ok(Arc::new(LoginTokens::new(consul, tasks, settings)?))
            }
        }
    }
}

fn of_flags(flags: &Flags) -> crate::Result<Option<String>> {
    partition(flags.partitions_enabled, flags.partition.as_deref().unwrap_or_default())
}

async fn perform(mode: Mode, command: Command, stop: CancellationToken) -> Result<(), Failure> {
    let environment = Environment::read().await?;
    let (mut options, metrics) = (environment::options()?, environment::metrics_address()?);
    let client = match &command {
        Command::Early(_) => environment::agent()?,
        Command::Current(config) => environment::servers(config, &stop).await?,
    };
    let reconciler = command.reconciler(&environment, &client).await?;
    match mode {
        Mode::Run => {
            let _metrics = metering::serve(metrics)?;
            match environment::leader_key() {
                Some(key) => {
                    let task = environment.task_arn();
                    election::run(client, key, &reconciler, &options, task, stop).await
                }
                None => Ok(Controller::new(reconciler, options).run(stop).await?),
            }
        }
        Mode::DryRun => {
            options.dry_run = true;
            once(&stop, Controller::new(reconciler, options).once()).await
        }
        Mode::Cleanup { force, dry_run } => {
            options.dry_run = dry_run;
            once(&stop, Controller::new(reconciler, options).cleanup(force)).await
        }
    }
}

/// Prints what was changed, or would be.
async fn once(
    stop: &CancellationToken,
    work: impl Future<Output = crate::Result<Report>>,
) -> Result<(), Failure> {
    let report = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(Failure::Logged("stopped before it was done".into())),
        report = work => report?,
    };
    if report.changes.is_empty() && report.errors.is_empty() {
        tracing::info!(resources = report.resources, "there is nothing to change");
    }
    for change in &report.changes {
        print(&change.to_string());
    }
    // Each of them is in the log already.
    match report.errors.len() {
        0 => Ok(()),
        failed => Err(Failure::Logged(format!("{failed} things could not be done"))),
    }
}
