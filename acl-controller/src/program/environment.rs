//! Settings from environment variables and the task's metadata.

use std::{net::SocketAddr, time::Duration};

use consul_watch::{Client, ClientConfig, GoDuration, error_chain};
use ecs_mesh_init::{
    Config,
    mesh_init::connect_and_follow,
    metadata::{HttpTaskMetadata, Task, TaskMetadata as _},
    program::Failure,
};
use tokio_util::sync::CancellationToken;

use crate::{
    ControllerOptions,
    aws::{Aws, AwsSettings},
};

/// Names the cluster where there is no metadata, as for a clean-up from elsewhere.
const CLUSTER: &str = "CONSUL_ECS_CLUSTER";

/// The settings from the environment and the task's metadata.
pub(super) struct Environment {
    task: Task,
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Environment {
    pub(super) async fn read() -> Result<Self, Failure> {
        if let Some(cluster) = var(CLUSTER) {
            return Ok(Self { task: elsewhere(cluster) });
        }
        let metadata = HttpTaskMetadata::from_vars(var).map_err(|error| {
            let told = error_chain(&error);
            Failure::Logged(format!("{told}; outside ECS, give the cluster's ARN in {CLUSTER}"))
        })?;
        let task = metadata.task().await?;
        Ok(Self { task })
    }

    /// The cluster as the metadata has it: by name on EC2, by ARN on Fargate.
    pub(super) fn cluster(&self) -> Result<String, Failure> {
        match self.task.cluster.as_str() {
            "" => Err(Failure::Logged("the task's metadata names no cluster".to_owned())),
            cluster => Ok(cluster.to_owned()),
        }
    }

    pub(super) fn cluster_arn(&self) -> Result<String, Failure> {
        Ok(self.task.cluster_arn()?)
    }

    /// The controller's own task; of none, outside ECS.
    pub(super) fn task_arn(&self) -> &str {
        &self.task.task_arn
    }

    /// The controller's own address.
    pub(super) fn address(&self) -> &str {
        self.task.node_ip()
    }

    pub(super) async fn aws(&self) -> Result<Aws, Failure> {
        let region = Some(self.task.region(var("AWS_REGION").as_deref())?);
        let settings = AwsSettings { region, ..AwsSettings::default() };
        Ok(Aws::connect(settings).await?)
    }
}

pub(super) fn options() -> Result<ControllerOptions, Failure> {
    let mut options = ControllerOptions::default();
    if let Some(interval) = duration("CONSUL_ECS_INTERVAL")? {
        options.interval = interval;
    }
    if let Some(interval) = duration("CONSUL_ECS_CHECK_INTERVAL")? {
        options.check_interval = interval;
    }
    Ok(options)
}

/// With it several controllers may be started, of which one works.
pub(super) fn leader_key() -> Option<String> {
    var("CONSUL_ECS_LEADER_KEY")
}

/// Returns the address at which metrics are served, if anywhere.
pub(super) fn metrics_address() -> Result<Option<SocketAddr>, Failure> {
    let name = "CONSUL_ECS_METRICS_ADDRESS";
    let Some(text) = var(name) else { return Ok(None) };
    let address = text.parse().map_err(|_error| {
        Failure::Logged(format!("{name}: {text:?} is not an address such as 127.0.0.1:9102"))
    })?;
    Ok(Some(address))
}

fn elsewhere(cluster: String) -> Task {
    let mut task = Task::default();
    // The region and the account are read from a task's ARN.
    task.task_arn = format!("{}/none", cluster.replacen(":cluster/", ":task/", 1));
    task.cluster = cluster;
    task
}

fn duration(name: &str) -> Result<Option<Duration>, Failure> {
    let Some(text) = var(name) else { return Ok(None) };
    match text.parse::<GoDuration>().map(GoDuration::get) {
        Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
        _ => Err(Failure::Logged(format!("{name}: {text:?} is not a duration such as 10s"))),
    }
}

/// The Consul of `CONSUL_HTTP_ADDR`, with the PEM text of its authority in `CONSUL_CACERT_PEM`.
pub(super) fn agent() -> Result<Client, Failure> {
    let told = |error| Failure::Logged(error_chain(&error));
    let mut config = ClientConfig::from_env().map_err(told)?;
    if let Some(pem) = var("CONSUL_CACERT_PEM") {
        config.tls.ca_pem = Some(pem);
    }
    Client::new(config).map_err(told)
}

/// The servers of the configuration, with the token of `CONSUL_HTTP_TOKEN`.
pub(super) async fn servers(config: &Config, stop: &CancellationToken) -> Result<Client, Failure> {
    let servers = config.consul_servers.clone().unwrap_or_default();
    let (http, grpc) = (var("CONSUL_HTTPS_CACERT_PEM"), var("CONSUL_GRPC_CACERT_PEM"));
    let authorities = (http.as_deref(), grpc.as_deref());
    let token = var("CONSUL_HTTP_TOKEN").map(Into::into);
    Ok(connect_and_follow(&servers, authorities, (None, None), token, stop).await?)
}
