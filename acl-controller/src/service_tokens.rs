//! Tokens that are made ahead and put into secrets, one for each service.
//!
//! This is what consul-ecs did up to 0.4: tasks get their tokens injected from the secret.

mod client_token;
mod decision;
mod listing;
mod memory;
mod pass;
mod policy;
mod removal;
mod secret;
mod token;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::{
    Consul, Error, Reconciler, Report, Result, SecretStore, TaskSource, Writer, tenancy::Tenancy,
};
use memory::Memory;

/// Settings of [`ServiceTokens`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServiceTokenSettings {
    /// The cluster, as its name stands in the descriptions of tokens and policies: what the
    /// controller's own task metadata says, which is a name on EC2 and an ARN on Fargate.
    pub cluster: String,
    /// Beginning of the names of secrets and of the clients' policy. Unique for each cluster.
    pub secret_prefix: String,
    /// The secret for the token that all Consul clients of the cluster share, by name or ARN;
    /// `None` makes no such token. Default `None`.
    pub client_secret: Option<String>,
    /// The Enterprise partition; `None` without partitions. See [`partition`](crate::partition).
    /// Default `None`.
    pub partition: Option<String>,
    /// Source of a token's rights. Default [`TokenRights::Policy`].
    pub rights: TokenRights,
    /// How many services are brought in line at a time, at least 1. Default 4.
    pub concurrency: usize,
}

/// Source of the rights of a service's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TokenRights {
    /// By a policy for each service, as of consul-ecs 0.4.
    #[default]
    Policy,
    /// By a service identity, without a policy, as of consul-ecs 0.2 and 0.3. It knows no
    /// partitions.
    ServiceIdentity,
}

impl ServiceTokenSettings {
    /// Settings with their defaults.
    pub fn new(cluster: impl Into<String>, secret_prefix: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            secret_prefix: secret_prefix.into(),
            client_secret: None,
            partition: None,
            rights: TokenRights::default(),
            concurrency: 4,
        }
    }

    fn check(&self) -> Result<()> {
        let config = |setting: &str, problem: String| {
            Err(Error::Config { setting: setting.to_owned(), problem })
        };
        // It has to come back from a description as one word.
        if self.cluster.is_empty() || self.cluster.contains(char::is_whitespace) {
            return config("cluster", format!("{:?} is not a name or ARN", self.cluster));
        }
        if self.secret_prefix.is_empty() {
            return config(
                "secret name prefix",
                "it is empty; give each cluster its own".to_owned(),
            );
        }
        if self.rights == TokenRights::ServiceIdentity && self.partition.is_some() {
            return config(
                "rights",
                "service identities cannot be used with partitions".to_owned(),
            );
        }
        Ok(())
    }
}

/// Makes a token for each service of a cluster's tasks and keeps it in a secret, together with a
/// policy for it; deletes both when the last task has stopped.
///
/// For each service the order of writes is policy, secret, token; a pass that breaks off anywhere
/// is made good by the next one. Nothing is made for a service without a secret.
///
/// The order of deletes is secret, tokens, policies: the secret gets the ids of the next token, with
/// the same accessor id, so that a service that comes back finds in it what will be its token. A
/// token that was deleted while its service runs comes back with another secret id, too: whoever
/// deletes one wants its secret to end. Tasks that run with it have to be started again.
///
/// Several of them may work on the same cluster at once: secrets are compared and swapped, and
/// what another one has made is taken as it is.
///
/// Deviation: unlike upstream it never makes a token again with the secret id of a deleted one;
/// compares whole cluster names, keeps a token until its last task
/// has stopped, puts a token's lost link to its policy back, repairs rules that were changed, puts
/// a secret right that was overwritten, and leaves policies of the same name alone that belong to
/// another cluster.
///
/// Source: consul-ecs 0.2 to 0.4 `subcommand/acl-controller`, `controller`.
#[derive(Debug)]
pub struct ServiceTokens {
    consul: Arc<dyn Consul>,
    tasks: Arc<dyn TaskSource>,
    secrets: Arc<dyn SecretStore>,
    settings: ServiceTokenSettings,
    tenancy: Tenancy,
    memory: Mutex<Memory>,
}

impl ServiceTokens {
    /// Nothing is read or written yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for settings that cannot be used.
    pub fn new(
        consul: Arc<dyn Consul>,
        tasks: Arc<dyn TaskSource>,
        secrets: Arc<dyn SecretStore>,
        settings: ServiceTokenSettings,
    ) -> Result<Self> {
        settings.check()?;
        let tenancy = Tenancy::new(settings.partition.clone())?;
        Ok(Self { consul, tasks, secrets, settings, tenancy, memory: Mutex::default() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn consul(&self) -> &dyn Consul {
        &*self.consul
    }

    fn with_partitions(&self) -> bool {
        self.tenancy.partition().is_some()
    }
}

#[async_trait]
impl Reconciler for ServiceTokens {
    async fn prepare(&self, writer: &Writer) -> Result<()> {
        self.tenancy.ensure_partition(self.consul(), writer).await?;
        self.ensure_client_token(writer).await
    }

    async fn pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        self.run_pass(writer, check).await
    }

    async fn cleanup(&self, writer: &Writer, force: bool) -> Result<Report> {
        self.remove_all(writer, force).await
    }
}
