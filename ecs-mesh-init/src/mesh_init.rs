//! Brings a task into the mesh: the work of the container `consul-ecs-mesh-init`, before the others
//! start.

mod control_plane;
mod current;
mod discovery;
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
pub use server_watch::connect_and_follow;
pub use servers::connect;

/// A run of mesh-init. It may be repeated: a second run registers nothing twice.
///
/// With a configuration of the early generation it registers with the agent in the task and writes
/// `envoy-bootstrap.json`; with one of the current generation it registers with the servers and
/// writes `consul-dataplane.json`. Either way it copies the program for the other containers.
#[derive(Clone)]
#[non_exhaustive]
pub struct MeshInit {
    /// Configuration of the task.
    pub config: Config,
    /// Metadata of the task, read once.
    pub metadata: Arc<dyn TaskMetadata>,
    /// Lookup of environment variables.
    pub vars: Vars,
    /// Client of the agent or the servers; replaces the one that the environment or the
    /// configuration describes. Its token is used where no login provides one. Default `None`.
    pub client: Option<Client>,
    /// Source of bearer tokens. Required if the configuration asks for a login.
    pub bearer_tokens: Option<Arc<dyn BearerTokens>>,
    /// Path of the program to copy for the other containers.
    pub program: PathBuf,
    /// `true` to use the servers' gRPC port. Default `true`.
    ///
    /// Nothing is registered before that port answers, with its TLS, so that success means that
    /// consul-dataplane can connect. With the feature `server-watch`, tasks also log in over it,
    /// and long-running parts follow the servers over it. Applies to the current generation,
    /// without a `client`.
    pub uses_grpc: bool,
    /// Retry policy of the registration. Default: every second, without an end.
    pub retry: RetryPolicy,
    /// Path of the resolver's configuration. Default `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Path of the program that redirects traffic. Default `iptables`.
    pub iptables: PathBuf,
}

impl std::fmt::Debug for MeshInit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshInit").field("config", &self.config).finish_non_exhaustive()
    }
}

impl MeshInit {
    /// Creates a run with upstream's defaults.
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
    /// [`Error::Metadata`], [`Error::File`] and [`Error::Input`] end the run; refusals of Consul
    /// are retried without an end, unless `retry` limits them. [`Error::Stopped`] when `stop` is
    /// cancelled: registrations made by then stay, and no file is half written.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let task = self.task(&stop).await?;
        match self.config.generation {
            Generation::Early => Box::pin(self.run_early(&task, &stop)).await,
            // Boxed, since the futures of both generations together would be large on every
            // caller's stack.
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
