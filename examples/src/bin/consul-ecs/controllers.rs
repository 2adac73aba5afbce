//! The controllers of ACL tokens, each as a daemon, as a dry run, and as a last clean-up.

mod arguments;
mod election;
mod metering;
mod surroundings;
pub(crate) mod usage;

use std::{ffi::OsString, sync::Arc};

use acl_controller::{
    Controller, LoginTokenSettings, LoginTokens, Reconciler, Registration, Report,
    ServiceTokenSettings, ServiceTokens, TokenRights, partition,
};
use consul_watch::Client;
use ecs_mesh_init::{
    Config,
    config::{CONFIG_VARIABLE, Generation, LogLevel},
    entrypoint::no_arguments,
};
use tokio_util::sync::CancellationToken;

use crate::{commands::until_terminated, failure::Failure, logging};
use arguments::Flags;
use surroundings::Surroundings;

/// Which controller, with what it was told.
enum Command {
    Early(Flags),
    Current(Box<Config>),
}

/// What it is to do.
#[derive(Clone, Copy)]
enum Errand {
    Run,
    DryRun,
    Cleanup { force: bool, dry_run: bool },
}

/// Runs a controller's command.
pub(crate) fn run(name: &str, arguments: &[OsString]) -> Result<u8, Failure> {
    let (errand, command) = match name {
        "dry-run" => (Errand::DryRun, Command::parse_next(arguments)),
        "cleanup" => {
            let (errand, rest) = cleanup_flags(arguments);
            (errand, Command::parse_next(rest))
        }
        _ => (Errand::Run, Command::parse(name, arguments)),
    };
    let command = command.map_err(Failure::Early)?;
    logging::start(command.log_level());
    until_terminated(|stop| perform(errand, command, stop))
}

fn cleanup_flags(arguments: &[OsString]) -> (Errand, &[OsString]) {
    let (mut force, mut dry_run, mut rest) = (false, false, arguments);
    while let Some((first, behind)) = rest.split_first() {
        match first.to_str() {
            Some("-force" | "--force") => force = true,
            Some("-dry-run" | "--dry-run") => dry_run = true,
            _ => break,
        }
        rest = behind;
    }
    (Errand::Cleanup { force, dry_run }, rest)
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
        surroundings: &Surroundings,
        client: &Client,
    ) -> Result<Arc<dyn Reconciler>, Failure> {
        let aws = surroundings.aws().await?;
        let consul = Arc::new(client.clone());
        match self {
            Self::Early(flags) if flags.keeps_secrets() => {
                let cluster = surroundings.cluster()?;
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
                let cluster = surroundings.cluster_arn()?;
                let mut settings = LoginTokenSettings::new(&cluster, surroundings.address());
                settings.iam_role_path = flags.iam_role_path.clone().unwrap_or_default();
                settings.partition = of_flags(flags)?;
                settings.registration = Registration::Clients;
                let tasks = Arc::new(aws.tasks(cluster));
                Ok(Arc::new(LoginTokens::new(consul, tasks, settings)?))
            }
            Self::Current(config) => {
                let cluster = surroundings.cluster_arn()?;
                let controller = config.controller.clone().unwrap_or_default();
                let mut settings = LoginTokenSettings::new(&cluster, surroundings.address());
                settings.iam_role_path = controller.iam_role_path;
                settings.partition =
                    partition(controller.partitions_enabled, &controller.partition)?;
                let tasks = Arc::new(aws.tasks(cluster));
                Ok(Arc::new(LoginTokens::new(consul, tasks, settings)?))
            }
        }
    }
}

fn of_flags(flags: &Flags) -> acl_controller::Result<Option<String>> {
    partition(flags.partitions_enabled, flags.partition.as_deref().unwrap_or_default())
}

async fn perform(errand: Errand, command: Command, stop: CancellationToken) -> Result<(), Failure> {
    let surroundings = Surroundings::read().await?;
    let (mut options, metrics) = (surroundings::options()?, surroundings::metrics_address()?);
    let client = match &command {
        Command::Early(_) => surroundings::agent()?,
        Command::Current(config) => surroundings::servers(config, &stop).await?,
    };
    let reconciler = command.reconciler(&surroundings, &client).await?;
    match errand {
        Errand::Run => {
            let _metrics = metering::serve(metrics)?;
            match surroundings::leader_key() {
                Some(key) => {
                    let task = surroundings.task_arn();
                    election::run(client, key, &reconciler, &options, task, stop).await
                }
                None => Ok(Controller::new(reconciler, options).run(stop).await?),
            }
        }
        Errand::DryRun => {
            options.dry_run = true;
            once(&stop, Controller::new(reconciler, options).once()).await
        }
        Errand::Cleanup { force, dry_run } => {
            options.dry_run = dry_run;
            once(&stop, Controller::new(reconciler, options).cleanup(force)).await
        }
    }
}

/// Prints what was changed, or would be.
async fn once(
    stop: &CancellationToken,
    work: impl Future<Output = acl_controller::Result<Report>>,
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
        crate::commands::print(&change.to_string());
    }
    // Each of them is in the log already.
    match report.errors.len() {
        0 => Ok(()),
        failed => Err(Failure::Logged(format!("{failed} things could not be done"))),
    }
}
