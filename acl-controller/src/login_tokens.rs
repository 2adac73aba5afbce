//! Manages tokens that tasks obtain by logging in with their IAM role.
//!
//! As consul-ecs from 0.5 on: the controller sets up auth methods, roles and binding rules, and
//! removes the tokens and services of tasks that are gone.

mod anonymous;
mod auth_method;
mod binding_rules;
mod listing;
mod pass;
mod removal;
mod roles;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::types::CatalogRegistration;

use crate::{
    Action, Change, Consul, Error, Object, Reconciler, Report, Result, TaskSource, Writer, arn,
    tenancy::Tenancy, undescribed::UndescribedTasks,
};

/// Path of trusted IAM roles where none is given.
const DEFAULT_ROLE_PATH: &str = "/consul-ecs/";

/// Way by which services of the cluster are registered in Consul.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Registration {
    /// Through a client agent in each task (consul-ecs 0.5 and 0.6): clients get a role and an auth
    /// method of their own.
    Clients,
    /// In the catalog, on one node that stands for the cluster (consul-ecs 0.7 and later): gateways
    /// get roles, and services of tasks that are gone are removed.
    #[default]
    Catalog,
}

/// Settings of [`LoginTokens`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoginTokenSettings {
    /// ARN of the cluster, from which the AWS account and partition of the trusted roles follow.
    pub cluster_arn: String,
    /// Address of the node that stands for the cluster: the controller's own. Only for
    /// [`Registration::Catalog`].
    pub node_address: String,
    /// Path of the IAM roles that are trusted, with or without the slashes around it. Empty stands
    /// for `/consul-ecs/`; only `/` trusts every role of the account. Default `/consul-ecs/`.
    ///
    /// Deviation: upstream trusts every role when the path, or everything around it, is missing.
    pub iam_role_path: String,
    /// Enterprise partition; `None` without partitions. See [`partition`](crate::partition).
    /// Default `None`.
    pub partition: Option<String>,
    /// Way by which services are registered in Consul. Default [`Registration::Catalog`].
    pub registration: Registration,
    /// Minimum age of a token that names its cluster without the ARN, before it can count as left
    /// over: the time in which a task of another cluster with that name has registered its
    /// services. Default 10 min.
    pub named_token_age: Duration,
    /// Number of tasks that are cleaned up at a time, at least 1. Default 4.
    pub concurrency: usize,
}

impl LoginTokenSettings {
    /// Creates settings with their defaults.
    pub fn new(cluster_arn: impl Into<String>, node_address: impl Into<String>) -> Self {
        Self {
            cluster_arn: cluster_arn.into(),
            node_address: node_address.into(),
            iam_role_path: DEFAULT_ROLE_PATH.to_owned(),
            partition: None,
            registration: Registration::default(),
            named_token_age: Duration::from_mins(10),
            concurrency: 4,
        }
    }

    /// Returns the pattern of IAM principals that the auth method trusts.
    fn principal(&self) -> Result<String> {
        let owner = arn::owner(&self.cluster_arn)
            .map_err(|error| config("cluster ARN", &error.to_string()))?;
        let path = self.iam_role_path.as_str();
        let path = if path.is_empty() { DEFAULT_ROLE_PATH } else { path };
        // Characters of IAM's paths, without `*`, which Consul reads as a wildcard.
        if path.chars().any(|c| c == '*' || c.is_whitespace() || c.is_control()) {
            return Err(config("IAM role path", &format!("{path:?} is not a path of IAM")));
        }
        let roles = match (path, path.trim_matches('/')) {
            ("/", _) => "role/*".to_owned(),
            // Only an explicit `/` trusts every role.
            (_, "") => return Err(config("IAM role path", &format!("{path:?} names no path"))),
            (_, inner) => format!("role/{inner}/*"),
        };
        Ok(format!("arn:{}:iam::{}:{roles}", owner.partition, owner.account))
    }
}

fn config(setting: &str, problem: &str) -> Error {
    Error::Config { setting: setting.to_owned(), problem: problem.to_owned() }
}

/// Sets up the logins of a cluster's tasks, and removes tokens and services of tasks that are gone.
///
/// A token is removed if its description says that it came from a login of a task of exactly this
/// cluster, and that task is not listed, has stopped, or has lost the mesh tag.
///
/// Deviation: unlike upstream it counts a task as gone only when it has stopped, and lists twice
/// before it deletes; also removes tokens that name the cluster without its ARN, as logins on EC2
/// did up to 0.6, unless a service shows that their task is of another cluster with that name; is
/// not stopped by one foreign service on the node; reports every failure; merges into the settings
/// of auth methods, and warns of one that trusts every role; and restores what is deleted while it
/// runs.
///
/// Source: consul-ecs 0.5 and 0.6 `subcommand/acl-controller`, 0.7 to 0.10
/// `subcommand/controller`, `controller`.
#[derive(Debug)]
pub struct LoginTokens {
    consul: Arc<dyn Consul>,
    tasks: Arc<dyn TaskSource>,
    settings: LoginTokenSettings,
    principal: String,
    tenancy: Tenancy,
    undescribed: Mutex<UndescribedTasks>,
}

impl LoginTokens {
    /// Creates the reconciler; reads and writes nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for unusable settings.
    pub fn new(
        consul: Arc<dyn Consul>,
        tasks: Arc<dyn TaskSource>,
        settings: LoginTokenSettings,
    ) -> Result<Self> {
        let principal = settings.principal()?;
        if settings.registration == Registration::Catalog && settings.node_address.is_empty() {
            return Err(config("node address", "it is empty; give the controller's own address"));
        }
        let tenancy = Tenancy::new(settings.partition.clone())?;
        Ok(Self { consul, tasks, settings, principal, tenancy, undescribed: Mutex::default() })
    }

    fn consul(&self) -> &dyn Consul {
        &*self.consul
    }

    fn undescribed(&self) -> MutexGuard<'_, UndescribedTasks> {
        self.undescribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_node(&self) -> bool {
        self.settings.registration == Registration::Catalog
    }

    /// Registers the node that stands for the cluster.
    async fn register_node(&self, writer: &Writer) -> Result<()> {
        let name = &self.settings.cluster_arn;
        let mut node = CatalogRegistration::new(name, &self.settings.node_address);
        node.node_meta.insert("synthetic-node".to_owned(), "true".to_owned());
        node.partition = self.tenancy.partition().map(str::to_owned);
        let change = Change::new(Action::Create, Object::Node, name);
        let done = writer.write(change, async {
            let done = self.consul.catalog_register(&node).await;
            done.map_err(Error::consul("registering ECS cluster as a node in Consul"))
        });
        done.await.map(drop)
    }

    /// Creates everything that logins need, except the node.
    async fn set_up(&self, writer: &Writer) -> Result<()> {
        let agent = self.consul.agent_self().await;
        let agent = agent.map_err(Error::consul("reading the agent's configuration"))?;
        let (consul, tenancy) = (self.consul(), &self.tenancy);
        // First, since everything below lives in it.
        tenancy.ensure_partition(consul, writer).await?;
        match self.settings.registration {
            Registration::Clients => self.ensure_client_role(writer).await?,
            Registration::Catalog => self.ensure_gateway_roles(writer).await?,
            // Roles before the binding rules that name them.
        }
        for method in self.auth_methods() {
            self.ensure_auth_method(writer, &method).await?;
        }
        self.ensure_binding_rules(writer).await?;
        anonymous::ensure(consul, writer, &agent, tenancy.partition().is_some()).await
    }
}

#[async_trait]
impl Reconciler for LoginTokens {
    async fn prepare(&self, writer: &Writer) -> Result<()> {
        self.set_up(writer).await?;
        if self.has_node() { self.register_node(writer).await } else { Ok(()) }
    }

    async fn pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        self.run_pass(writer, check).await
    }

    async fn cleanup(&self, writer: &Writer, force: bool) -> Result<Report> {
        self.remove_all(writer, force).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(path: &str) -> String {
        let mut settings =
            LoginTokenSettings::new("arn:aws:ecs:us-east-1:123456789012:cluster/c1", "10.0.0.1");
        path.clone_into(&mut settings.iam_role_path);
        settings.principal().unwrap()
    }

    /// A known defect of upstream: a missing or empty path trusts every role. Only `/` does.
    ///
    /// Case ACL45: an empty IAM role path means `/consul-ecs/`, never every role.
    #[test]
    fn only_a_slash_trusts_every_role() {
        let expected = "arn:aws:iam::123456789012:role/consul-ecs/*";
        for path in ["", "/consul-ecs/", "consul-ecs", "/consul-ecs"] {
            assert_eq!(principal(path), expected, "{path:?}");
        }
        let untouched =
            LoginTokenSettings::new("arn:aws:ecs:us-east-1:123456789012:cluster/c1", "x");
        assert_eq!(untouched.principal().unwrap(), expected);
        assert_eq!(principal("/"), "arn:aws:iam::123456789012:role/*");
        assert_eq!(principal("/a/b/"), "arn:aws:iam::123456789012:role/a/b/*");
    }

    #[test]
    fn a_path_with_a_wildcard_and_a_cluster_without_account_are_refused() {
        let mut settings = LoginTokenSettings::new("arn:aws-cn:ecs:cn-north-1:1:cluster/c", "x");
        assert_eq!(settings.principal().unwrap(), "arn:aws-cn:iam::1:role/consul-ecs/*");
        for path in ["/*/", "//", "///"] {
            path.clone_into(&mut settings.iam_role_path);
            assert!(settings.principal().is_err(), "{path}");
        }
        assert!(LoginTokenSettings::new("prod", "x").principal().is_err());
    }
}
