//! Deletes tokens and policies: of services without tasks, surplus ones, and of a whole cluster.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Mutex, PoisonError},
};

use super::{
    ServiceTokens,
    listing::{Located, ObservedState, ServiceState},
    token::token_name,
};
use crate::{
    Action, Change, Error, Object, Report, Result, Writer, arn,
    service_name::{ServiceName, Subject},
    token_ids::ParsedSecret,
};
use consul_watch::types::AclTokenEntry;

impl ServiceTokens {
    /// Deletes tokens, then policies. Stops at the first error, so that no token outlives its
    /// policy unnoticed.
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

    /// Deletes tokens beside a service's own, once no task runs that may have got one.
    ///
    /// Deviation: upstream leaves them until the whole service is gone.
    pub(super) async fn remove_surplus(
        &self,
        writer: &Writer,
        observed: &ObservedState,
        report: &mut Report,
    ) {
        let many = observed
            .services
            .iter()
            .filter(|(_, state)| state.tokens.len() > 1 && !state.tasks.is_empty());
        for (service, state) in many {
            for token in self.unused(service, state, observed) {
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
        observed: &ObservedState,
    ) -> Vec<&'a Located<AclTokenEntry>> {
        let mut memory = self.memory();
        let Some(own) = memory.verified(service).map(|verified| verified.accessor.clone()) else {
            return Vec::new();
        };
        // Without a sound token of its own, none of the others is known to be surplus.
        if !observed.accessors.contains(&own) || !observed.running.undescribed.is_empty() {
            return Vec::new();
        }
        let others = state.tokens.iter().filter(|token| token.object.accessor_id != own);
        let running: HashSet<&String> = state.tasks.iter().collect();
        let mut unused = Vec::new();
        for token in others {
            let tasks = memory
                .surplus
                .entry(token.object.accessor_id.clone())
                // Tasks that run when a surplus token is first seen may use it; later ones get the
                // secret's.
                .or_insert_with(|| state.tasks.iter().cloned().collect());
            if !tasks.iter().any(|task| running.contains(task)) {
                unused.push(token);
            }
        }
        unused
    }

    /// Removes everything of the cluster, which is taken down.
    pub(super) async fn remove_all(&self, writer: &Writer, force: bool) -> Result<Report> {
        let mut observed = ObservedState {
            namespaces: self.tenancy.namespaces(self.consul()).await?,
            ..ObservedState::default()
        };
        for namespace in observed.namespaces.clone() {
            self.observe_namespace(&namespace.name, &mut observed).await?;
        }
        // Consul is read before the tasks, as in a pass.
        let namesakes = self.observe_namesakes(&observed).await?;
        if !force {
            let running = self.observe_tasks(true).await?;
            let tasks: HashSet<&String> = running.services.values().flatten().collect();
            crate::reconciler::refuse_running(tasks.len() + running.undescribed.len())?;
        }
        let mut report = Report { resources: observed.services.len(), ..Report::default() };
        self.delete_all(writer, &observed, &mut report).await;
        for (name, namesake) in namesakes {
            match self.is_proven(&namesake).await {
                Ok(true) => {
                    report.resources += namesake.services.len();
                    self.delete_all(writer, &namesake, &mut report).await;
                }
                Ok(false) => report.errors.push(Error::input(format!(
                    "{} services of the cluster {name} have tokens or policies, and no secret says whether it is the same as {}; if it is, clean up once more with the cluster given as {name}",
                    namesake.services.len(),
                    self.settings.cluster
                ))),
                Err(error) => report.errors.push(error),
            }
        }
        report.errors.extend(self.remove_client_token(writer).await.err());
        Ok(report)
    }

    async fn delete_all(&self, writer: &Writer, observed: &ObservedState, report: &mut Report) {
        for (service, state) in &observed.services {
            if let Err(error) = self.delete(writer, state).await {
                report.errors.push(Error::step(format!("removing service {service}"), error));
            }
        }
    }

    /// Observes clusters with the same name in the other form, name or ARN: on EC2 the task's
    /// metadata has the one, on Fargate the other, and whoever cleans up may not know which.
    async fn observe_namesakes(
        &self,
        own: &ObservedState,
    ) -> Result<BTreeMap<String, ObservedState>> {
        let clusters = Mutex::new(BTreeSet::new());
        for namespace in &own.namespaces {
            let note = |subject, text: &str| {
                let (service, cluster) = ServiceName::parse(subject, text, self.with_partitions())?;
                let alike = arn::is_cluster_in_other_form(&self.settings.cluster, cluster);
                if alike {
                    let mut clusters = clusters.lock().unwrap_or_else(PoisonError::into_inner);
                    clusters.insert(cluster.to_owned());
                }
                alike.then_some(service)
            };
            self.observe_matching(&namespace.name, &mut ObservedState::default(), note).await?;
        }
        let mut found = BTreeMap::new();
        for cluster in clusters.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let mut observed = ObservedState::default();
            for namespace in &own.namespaces {
                let read = |subject, text: &str| {
                    let partitions = self.with_partitions();
                    ServiceName::from_description(subject, text, &cluster, partitions)
                };
                self.observe_matching(&namespace.name, &mut observed, read).await?;
            }
            found.insert(cluster, observed);
        }
        Ok(found)
    }

    /// Returns `true` if the objects of a cluster are this one's, because one of our secrets holds
    /// one of its tokens. Another account may have a cluster with the same name.
    async fn is_proven(&self, namesake: &ObservedState) -> Result<bool> {
        for (service, state) in &namesake.services {
            let name = service.secret_name(&self.settings.secret_prefix);
            let stored = self.secrets.get(&name).await;
            let stored =
                stored.map_err(|error| Error::step(format!("retrieving secret {name}"), error))?;
            let Some(ParsedSecret::Ids(ids)) =
                stored.map(|it| ParsedSecret::read(it.value.as_ref()))
            else {
                continue;
            };
            if state.tokens.iter().any(|token| token.object.accessor_id == ids.accessor) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
