use std::collections::{BTreeMap, HashMap, HashSet};

use consul_watch::{
    client::AclTokenFilter,
    types::{AclPolicy, AclTokenEntry, Namespace},
};

use super::ServiceTokens;
use crate::{
    Error, Result, mesh_task,
    service_name::{ServiceName, Subject},
    task::TaskListing,
};

/// What there is of one service.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceState {
    /// ARNs of its tasks.
    pub(super) tasks: Vec<String>,
    pub(super) tokens: Vec<Located<AclTokenEntry>>,
    pub(super) policies: Vec<Located<AclPolicy>>,
}

/// An object and the namespace that it was found in.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) object: T,
    pub(super) namespace: String,
}

/// Everything, as one pass sees it.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) services: BTreeMap<ServiceName, ServiceState>,
    pub(super) namespaces: Vec<Namespace>,
    /// Every token of Consul, also of others.
    pub(super) accessors: HashSet<String>,
    pub(super) running: Running,
}

/// What runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// ARNs of the tasks of each service.
    pub(super) services: HashMap<ServiceName, Vec<String>>,
    pub(super) meshed: usize,
    pub(super) skipped: usize,
    /// Why the first one was passed over.
    pub(super) problem: Option<Error>,
    /// Tasks that may belong to any service.
    pub(super) undescribed: Vec<String>,
}

impl ServiceTokens {
    /// Consul is read before the tasks: what is found without a task then had none later either.
    pub(super) async fn look(&self) -> Result<Picture> {
        let mut picture = Picture {
            namespaces: self.tenancy.namespaces(self.consul()).await?,
            ..Picture::default()
        };
        for namespace in picture.namespaces.clone() {
            self.look_into(&namespace.name, &mut picture).await?;
        }
        picture.running = self.look_at_tasks(true).await?;
        for (service, tasks) in &picture.running.services {
            picture.services.entry(service.clone()).or_default().tasks.clone_from(tasks);
        }
        self.note(&picture);
        Ok(picture)
    }

    pub(super) async fn look_into(&self, namespace: &str, picture: &mut Picture) -> Result<()> {
        let options = self.tenancy.read(namespace);
        let policies = self.consul.acl_policies(&options).await;
        for policy in policies.map_err(Error::consul("listing policies"))?.value {
            if let Some(service) = self.read_description(Subject::Policy, &policy.description) {
                let found = Located { object: policy, namespace: namespace.to_owned() };
                picture.services.entry(service).or_default().policies.push(found);
            }
        }
        let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &options).await;
        for token in tokens.map_err(Error::consul("listing tokens"))?.value {
            picture.accessors.insert(token.accessor_id.clone());
            if let Some(service) = self.read_description(Subject::Token, &token.description) {
                let found = Located { object: token, namespace: namespace.to_owned() };
                picture.services.entry(service).or_default().tokens.push(found);
            }
        }
        Ok(())
    }

    pub(super) fn read_description(&self, subject: Subject, text: &str) -> Option<ServiceName> {
        let cluster = &self.settings.cluster;
        ServiceName::from_description(subject, text, cluster, self.with_partitions())
    }

    /// What runs; `first` for the first listing of a pass.
    pub(super) async fn look_at_tasks(&self, first: bool) -> Result<Running> {
        let TaskListing { tasks, undescribed } = self.tasks.tasks().await?;
        let undescribed = {
            let mut memory = self.memory();
            if first {
                memory.doubts.next_pass(&undescribed)
            } else {
                memory.doubts.again(&undescribed)
            }
        };
        let mut running = Running { undescribed, ..Running::default() };
        for task in tasks.iter().filter(|task| mesh_task::is_meshed(task)) {
            match ServiceName::of_task(task, self.tenancy.partition()) {
                Ok(Some(service)) => {
                    running.meshed += 1;
                    running.services.entry(service).or_default().push(task.arn.clone());
                }
                Ok(None) => {
                    tracing::debug!(task.arn, "skipping task in external partition");
                }
                Err(error) => {
                    tracing::debug!(task.arn, error = %error, "couldn't get service name from task");
                    running.skipped += 1;
                    running.problem.get_or_insert(Error::step(format!("task {}", task.arn), error));
                }
            }
        }
        Ok(running)
    }

    /// Remembers what later passes compare with.
    fn note(&self, picture: &Picture) {
        let running = &picture.running;
        let mut memory = self.memory();
        memory.pass += 1;
        memory.keep(|service| picture.services.contains_key(service));
        let surplus_known = |accessor: &String| picture.accessors.contains(accessor);
        memory.surplus.retain(|accessor, _| surplus_known(accessor));
        let policies = picture.services.values().flat_map(|state| &state.policies);
        let ids: HashSet<&str> = policies.map(|found| found.object.id.as_str()).collect();
        memory.rules.retain(|id, _| ids.contains(id.as_str()));
        if memory.skipped != running.skipped {
            memory.skipped = running.skipped;
            if let Some(problem) = &running.problem {
                tracing::warn!(
                    skipped = running.skipped,
                    first = problem as &dyn std::error::Error,
                    "tasks are passed over"
                );
            }
        }
    }
}
