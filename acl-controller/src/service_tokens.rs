//! Manages tokens that are created ahead and stored in secrets, one for each service.
//!
//! As consul-ecs up to 0.4: tasks get their tokens injected from the secret.

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
    /// Name of the cluster in the descriptions of tokens and policies: the one in the controller's
    /// own task metadata, which is a name on EC2 and an ARN on Fargate.
    pub cluster: String,
    /// Prefix of the names of secrets and of the clients' policy. Unique for each cluster.
    pub secret_prefix: String,
    /// Name or ARN of the secret for the token that all Consul clients of the cluster share; `None`
    /// creates no such token. Default `None`.
    pub client_secret: Option<String>,
    /// Enterprise partition; `None` without partitions. See [`partition`](crate::partition).
    /// Default `None`.
    pub partition: Option<String>,
    /// Source of a token's rights. Default [`TokenRights::Policy`].
    pub rights: TokenRights,
    /// Number of services that are reconciled at a time, at least 1. Default 4.
    pub concurrency: usize,
}

/// Source of the rights of a service's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TokenRights {
    /// A policy for each service, as consul-ecs 0.4.
    #[default]
    Policy,
    /// A service identity, without a policy, as consul-ecs 0.2 and 0.3. Does not support
    /// partitions.
    ServiceIdentity,
}

impl ServiceTokenSettings {
    /// Creates settings with their defaults.
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
        // A description has to give it back as one word.
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

/// Creates a token for each service of a cluster's tasks and stores it in a secret, together with a
/// policy for it; deletes both when the last task has stopped.
///
/// For each service the order of writes is policy, secret, token; a pass that breaks off anywhere
/// is completed by the next one. Nothing is created for a service without a secret.
///
/// The order of deletes is secret, tokens, policies: the secret gets the ids of the next token,
/// with the same accessor id, so that a service that returns finds in it the ids of its token to
/// come. A token that was deleted while its service runs is created again with another secret id:
/// whoever deletes a token wants its secret id to end. Tasks that run with it have to be restarted.
///
/// Several instances may work on the same cluster at once: secrets are compared and swapped, and
/// objects of other instances are used as they are.
///
/// Deviation: unlike upstream it never creates a token again with the secret id of a deleted one;
/// compares whole cluster names; keeps a token until its last task has stopped; restores a token's
/// lost link to its policy; repairs changed rules and overwritten secrets; and leaves policies of
/// the same name alone that belong to another cluster.
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
    /// Creates the reconciler; reads and writes nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for unusable settings.
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
        // The partition first, since the token lives in it.
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
