use std::collections::HashSet;

use super::{
    ServiceTokens,
    listing::{Located, Picture, ServiceState},
    token::token_name,
};
use crate::{
    Action, Change, Error, Object, Report, Result, Writer,
    service_name::{ServiceName, Subject},
};
use consul_watch::types::AclTokenEntry;

impl ServiceTokens {
    /// Tokens, then policies; the first error stops, so that no token outlives its policy unseen.
    pub(super) async fn delete(&self, writer: &Writer, state: &ServiceState) -> Result<()> {
        for token in &state.tokens {
            self.delete_token(writer, token).await?;
        }
        for policy in &state.policies {
            let (id, name) = (&policy.object.id, &policy.object.name);
            let change = Change::new(Action::Delete, Object::Policy, name);
            let write = self.tenancy.write(&policy.namespace);
            let gone = writer.write(change, async {
                let gone = self.consul.acl_policy_delete(id, &write).await;
                gone.map_err(Error::consul(format!("deleting policy {name}")))
            });
            gone.await?;
        }
        Ok(())
    }

    async fn delete_token(&self, writer: &Writer, token: &Located<AclTokenEntry>) -> Result<()> {
        let id = &token.object.accessor_id;
        let shown = match self.read_description(Subject::Token, &token.object.description) {
            Some(service) => token_name(&service, id),
            None => id.clone(),
        };
        let write = self.tenancy.write(&token.namespace);
        let gone = writer.write(Change::new(Action::Delete, Object::Token, shown), async {
            let gone = self.consul.acl_token_delete(id, &write).await;
            gone.map_err(Error::consul(format!("deleting token {id}")))
        });
        gone.await.map(drop)
    }

    /// Deletes tokens beside a service's own, once no task runs any more that may have got one.
    ///
    /// Deviation: upstream leaves them until the whole service is gone.
    pub(super) async fn remove_surplus(
        &self,
        writer: &Writer,
        picture: &Picture,
        report: &mut Report,
    ) {
        let many = picture
            .services
            .iter()
            .filter(|(_, state)| state.tokens.len() > 1 && !state.tasks.is_empty());
        for (service, state) in many {
            for token in self.unused(service, state, picture) {
                if let Err(error) = self.delete_token(writer, token).await {
                    let step = format!("deleting a second token of service {service}");
                    report.errors.push(Error::step(step, error));
                }
            }
        }
    }

    fn unused<'a>(
        &self,
        service: &ServiceName,
        state: &'a ServiceState,
        picture: &Picture,
    ) -> Vec<&'a Located<AclTokenEntry>> {
        let mut memory = self.memory();
        let Some(own) = memory.verified(service).map(|verified| verified.accessor.clone()) else {
            return Vec::new();
        };
        if !picture.accessors.contains(&own) || !picture.running.undescribed.is_empty() {
            return Vec::new();
        }
        let others = state.tokens.iter().filter(|token| token.object.accessor_id != own);
        let running: HashSet<&String> = state.tasks.iter().collect();
        let mut unused = Vec::new();
        for token in others {
            let tasks = memory
                .surplus
                .entry(token.object.accessor_id.clone())
                .or_insert_with(|| state.tasks.iter().cloned().collect());
            if !tasks.iter().any(|task| running.contains(task)) {
                unused.push(token);
            }
        }
        unused
    }

    /// Removes everything of the cluster, which is taken down.
    pub(super) async fn remove_all(&self, writer: &Writer, force: bool) -> Result<Report> {
        let mut picture = Picture {
            namespaces: self.tenancy.namespaces(self.consul()).await?,
            ..Picture::default()
        };
        for namespace in picture.namespaces.clone() {
            self.look_into(&namespace.name, &mut picture).await?;
        }
        let mut report = Report { resources: picture.services.len(), ..Report::default() };
        if !force {
            let running = self.look_at_tasks(true).await?;
            crate::reconciler::refuse_running(running.meshed + running.undescribed.len())?;
        }
        for (service, state) in &picture.services {
            if let Err(error) = self.delete(writer, state).await {
                report.errors.push(Error::step(format!("removing service {service}"), error));
            }
        }
        report.errors.extend(self.remove_client_token(writer).await.err());
        Ok(report)
    }
}
