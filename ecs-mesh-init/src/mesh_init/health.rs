//! Connects health-sync for the task that mesh-init brought into the mesh, in both generations.

use std::sync::Arc;

use consul_watch::Client;
use tokio_util::sync::CancellationToken;

use super::MeshInit;
use crate::{
    Error, Result,
    config::Generation,
    health_sync::{HealthSync, Logout},
    login::token_file,
    registration::{AgentRegistrar, CatalogRegistrar, Registrar, TaskPlan},
};

impl MeshInit {
    /// Connects and logs in, and returns the health-sync of this task.
    ///
    /// # Errors
    ///
    /// The errors of [`MeshInit::run`].
    pub async fn health_sync(&self, stop: &CancellationToken) -> Result<HealthSync> {
        let task = self.task(stop).await?;
        let config = &self.config;
        let plan = TaskPlan::new(config, &task, self.var("AWS_REGION").as_deref())?;
        let (registrar, logout): (Arc<dyn Registrar>, Option<Logout>) = match config.generation {
            Generation::Early => {
                let client = self.agent_client()?;
                let logout = config.login().map(|_login| {
                    let files =
                        // `client-token` belongs to the agent's container; health-sync logs it out,
                        // too, as upstream.
                        vec![token_file(&config.bootstrap_dir), self.in_volume("client-token")];
                    Logout::of_files(client.clone(), files)
                });
                (Arc::new(AgentRegistrar::new(Arc::new(client))), logout)
            }
            Generation::Current => {
                let servers = config.consul_servers.clone().unwrap_or_default();
                let node = task.cluster_arn()?;
                // Follows the servers, because health-sync runs as long as the task.
                let session = self.open_session(&servers, &task, &plan, &node, true, stop).await?;
                let logout = session.logged_in.then(|| Logout::of_client(session.client.clone()));
                (Arc::new(CatalogRegistrar::new(session.client, node)), logout)
            }
        };
        let containers = config.health_sync_containers.clone();
        let metadata = Arc::clone(&self.metadata);
        let mut sync = HealthSync::new(config.generation, containers, plan, metadata, registrar);
        sync.logout = logout;
        Ok(sync)
    }

    /// Returns the given client of the agent, else one with the token that mesh-init left in the
    /// volume.
    fn agent_client(&self) -> Result<Client> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let mut config = self.agent_config()?;
        if self.config.login().is_some() {
            config.token_file = Some(token_file(&self.config.bootstrap_dir));
        }
        Client::new(config).map_err(|error| Error::consul("making a client of the agent", error))
    }
}
