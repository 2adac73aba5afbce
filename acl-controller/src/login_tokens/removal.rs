//! Removes what tasks and clusters leave behind: login tokens, services, and at last the node.

use consul_watch::types::CatalogDeregistration;

use super::{
    LoginTokens,
    listing::{TaskService, TaskState},
};
use crate::{Action, Change, Error, Object, Report, Result, Writer};

impl LoginTokens {
    /// Deletes the tokens of a task and deregisters its services. A failure of one does not prevent
    /// the other.
    ///
    /// Deviation: upstream does not report services that could not be deregistered.
    pub(super) async fn remove_task(&self, writer: &Writer, state: &TaskState) -> Result<()> {
        let mut errors = Vec::new();
        errors.extend(self.delete_tokens(writer, state).await.err());
        for service in &state.services {
            errors.extend(self.deregister(writer, service).await.err());
        }
        Error::several(errors).map_or(Ok(()), Err)
    }

    async fn delete_tokens(&self, writer: &Writer, state: &TaskState) -> Result<()> {
        for token in &state.tokens {
            let id = &token.accessor;
            let write = self.tenancy.write(&token.namespace);
            let gone = writer.write(Change::new(Action::Delete, Object::Token, id), async {
                let gone = self.consul.acl_token_delete(id, &write).await;
                gone.map_err(Error::consul(format!("deleting token {id}")))
            });
            gone.await?;
        }
        Ok(())
    }

    async fn deregister(&self, writer: &Writer, service: &TaskService) -> Result<()> {
        let mut request = CatalogDeregistration::service(&self.settings.cluster_arn, &service.id);
        if let Some(partition) = self.tenancy.partition() {
            request.partition = Some(partition.to_owned());
            request.namespace.clone_from(&service.namespace);
        }
        let gone = writer.write(Change::new(Action::Delete, Object::Service, &service.id), async {
            let gone = self.consul.catalog_deregister(&request).await;
            gone.map_err(Error::consul(format!("deregistering service {}", service.id)))
        });
        gone.await.map(drop)
    }

    /// Removes tokens, services and node of the cluster, which is taken down. Auth methods, rules,
    /// roles and policies stay: other clusters share them.
    pub(super) async fn remove_all(&self, writer: &Writer, force: bool) -> Result<Report> {
        let observed = if force { self.observe_consul().await? } else { self.observe().await? };
        if !force {
            // A task that lost its tags still has the token that it got.
            let running = observed.tasks.values().filter(|task| task.found).count();
            crate::reconciler::refuse_running(running + observed.undescribed)?;
        }
        let mut report = Report { resources: observed.tasks.len(), ..Report::default() };
        self.clean_up(writer, observed.tasks.into_iter().collect(), &mut report).await;
        // Only after everything else: without the node its services can no longer be found.
        if observed.node_exists && report.is_complete() {
            report.errors.extend(self.deregister_node(writer).await.err());
        }
        Ok(report)
    }

    /// Deregisters the cluster's node, unless it carries anything else.
    async fn deregister_node(&self, writer: &Writer) -> Result<()> {
        let name = &self.settings.cluster_arn;
        let options = self.tenancy.read("*");
        let found = self.consul.catalog_node_services(name, &options).await;
        let found = found.map_err(Error::consul("listing services of the cluster's node"))?.value;
        let Some((node, services)) = found else { return Ok(()) };
        let synthetic = node.meta.get("synthetic-node").is_some_and(|value| value == "true");
        if !synthetic || (!services.is_empty() && !writer.is_dry_run()) {
            tracing::warn!(node = name, "the node stays: it is not only the controller's");
            return Ok(());
        }
        let mut request = CatalogDeregistration::node(name);
        request.partition = self.tenancy.partition().map(str::to_owned);
        let gone = writer.write(Change::new(Action::Delete, Object::Node, name), async {
            let gone = self.consul.catalog_deregister(&request).await;
            gone.map_err(Error::consul("deregistering the cluster's node"))
        });
        gone.await.map(drop)
    }
}
