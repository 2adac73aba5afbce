//! Bringing a task into the mesh: what the container `consul-ecs-mesh-init` does before the others
//! start.

mod control_plane;
mod current;
mod early;
mod grpc;
mod health;
mod program;
mod server_pool;
#[cfg(feature = "server-watch")]
mod server_watch;
mod servers;

use std::{path::PathBuf, sync::Arc};

use consul_watch::Client;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Error, Result, Vars,
    config::{Generation, LoginConfig},
    login::BearerTokens,
    metadata::{Task, TaskMetadata},
    registration::RetryPolicy,
};

pub use control_plane::{ControlPlane, HEALTH_PATH};
pub use program::own_program;
#[cfg(feature = "server-watch")]
pub(crate) use server_watch::Refusal;
#[cfg(feature = "server-watch")]
pub use server_watch::connect_and_follow;
pub use servers::connect;

/// One run of mesh-init. Running it again registers nothing anew.
///
/// With a configuration of the early generation it registers with the agent beside the task and
/// writes `envoy-bootstrap.json`; with one of the current generation it registers with the servers
/// and writes `consul-dataplane.json`. In both it copies the program for the other containers.
#[derive(Clone)]
#[non_exhaustive]
pub struct MeshInit {
    /// The task's configuration.
    pub config: Config,
    /// The task's metadata, asked for once.
    pub metadata: Arc<dyn TaskMetadata>,
    /// The environment.
    pub vars: Vars,
    /// Client of the agent, or of the servers, instead of one by the environment or the
    /// configuration. Its token is used where no login gives one. Default `None`.
    pub client: Option<Client>,
    /// Who makes bearer tokens. Needed when the configuration asks for a login.
    pub bearer_tokens: Option<Arc<dyn BearerTokens>>,
    /// The program to copy for the other containers.
    pub program: PathBuf,
    /// Uses the servers' gRPC port. Nothing is registered before it answers, with its TLS: so that
    /// success means that consul-dataplane can connect. With the feature `server-watch`, tasks also
    /// log in over it, and what runs for long follows the servers over it. Current generation,
    /// without a `client`. Default true.
    pub uses_grpc: bool,
    /// How registration is retried. Default: every second, without an end.
    pub retry: RetryPolicy,
    /// The resolver's configuration. Default `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The program that redirects traffic. Default `iptables`.
    pub iptables: PathBuf,
}

impl std::fmt::Debug for MeshInit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshInit").field("config", &self.config).finish_non_exhaustive()
    }
}

impl MeshInit {
    /// A run with upstream's defaults.
    pub fn new(
        config: Config,
        metadata: Arc<dyn TaskMetadata>,
        vars: Vars,
        program: PathBuf,
    ) -> Self {
        Self {
            config,
            metadata,
            vars,
            client: None,
            bearer_tokens: None,
            program,
            uses_grpc: true,
            retry: RetryPolicy::default(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            iptables: PathBuf::from("iptables"),
        }
    }

    /// Brings the task into the mesh.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`], [`Error::File`], [`Error::Input`] as they come; what Consul refuses is
    /// tried again without an end, unless `retry` says otherwise. [`Error::Stopped`] when `stop` is
    /// cancelled: what was registered by then stays, and no file is half written.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let task = self.task(&stop).await?;
        match self.config.generation {
            Generation::Early => Box::pin(self.run_early(&task, &stop)).await,
            Generation::Current => Box::pin(self.run_current(&task, &stop)).await,
        }?;
        tracing::info!("successfully initialized the task to operate as part of the mesh");
        Ok(())
    }

    async fn task(&self, stop: &CancellationToken) -> Result<Task> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Stopped { operation: "reading the task's metadata" }),
            task = self.metadata.task() => task,
        }
    }

    fn var(&self, name: &str) -> Option<String> {
        (self.vars)(name).filter(|value| !value.is_empty())
    }

    fn in_volume(&self, name: &str) -> PathBuf {
        self.config.bootstrap_dir.join(name)
    }

    async fn bearer_token(&self, login: &LoginConfig, task: &Task) -> Result<SecretString> {
        match &self.bearer_tokens {
            Some(tokens) => tokens.bearer_token(login, task).await,
            None => Err(Error::input(
                "consulLogin is enabled, but this program was built without the feature iam-auth",
            )),
        }
    }

    async fn copy_program(&self) -> Result<()> {
        crate::files::copy_program(self.program.clone(), self.in_volume("consul-ecs")).await
    }
}
