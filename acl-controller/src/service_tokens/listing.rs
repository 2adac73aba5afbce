//! Observes the state for one pass: services with their tasks, tokens and policies, and name
//! collisions of their secrets.

use std::collections::{BTreeMap, HashMap, HashSet};

use consul_watch::{
    client::AclTokenFilter,
    types::{AclPolicy, AclTokenEntry, Namespace},
};

use super::ServiceTokens;
use crate::{
    Error, Result, mesh_task,
    service_name::{ServiceName, Subject},
    task::{Task, TaskListing},
};

/// Description of the tokens that controllers create for the Consul clients of their clusters.
pub(super) const CLIENT_DESCRIPTION: &str = "ECS Consul client Token";

/// Returns `true` if a controller of this or another cluster created a token for its clients.
pub(super) fn is_for_clients(token: &AclTokenEntry) -> bool {
    token.description == CLIENT_DESCRIPTION
}

/// State of one service.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceState {
    /// ARNs of its tasks.
    pub(super) tasks: Vec<String>,
    pub(super) tokens: Vec<Located<AclTokenEntry>>,
    pub(super) policies: Vec<Located<AclPolicy>>,
    /// Other services with tasks and the same secret, which have precedence over this one.
    pub(super) collisions: Vec<ServiceName>,
}

/// Object with the namespace in which it was found.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) object: T,
    pub(super) namespace: String,
}

/// Observed state of Consul and ECS.
#[derive(Debug, Default)]
pub(super) struct ObservedState {
    pub(super) services: BTreeMap<ServiceName, ServiceState>,
    pub(super) namespaces: Vec<Namespace>,
    /// Accessor ids of all tokens of Consul, including those of others.
    pub(super) accessors: HashSet<String>,
    /// Tokens of all clusters' clients.
    pub(super) clients: Vec<AclTokenEntry>,
    pub(super) running: Running,
}

/// Running tasks.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// ARNs of the tasks of each service.
    pub(super) services: HashMap<ServiceName, Vec<String>>,
    pub(super) meshed: usize,
    pub(super) skipped: usize,
    /// Reason why the first skipped task was skipped.
    pub(super) problem: Option<Error>,
    /// Tasks that may belong to any service; deletions wait for them.
    pub(super) undescribed: Vec<String>,
}

impl Running {
    fn add(&mut self, task: &str, services: &[ServiceName]) {
        for service in services {
            self.services.entry(service.clone()).or_default().push(task.to_owned());
        }
    }
}

impl ServiceTokens {
    /// Observes Consul, then the tasks: a token that is found without a task had none later either.
    pub(super) async fn observe(&self) -> Result<ObservedState> {
        let mut observed = ObservedState {
            namespaces: self.tenancy.namespaces(self.consul()).await?,
            ..ObservedState::default()
        };
        for namespace in observed.namespaces.clone() {
            self.observe_namespace(&namespace.name, &mut observed).await?;
        }
        observed.running = self.observe_tasks(true).await?;
        for (service, tasks) in &observed.running.services {
            observed.services.entry(service.clone()).or_default().tasks.clone_from(tasks);
        }
        self.find_collisions(&mut observed);
        self.note(&observed);
        Ok(observed)
    }

    /// Finds services whose secrets collide.
    ///
    /// Names of services, namespaces and the partition are joined by hyphens to the name of a
    /// secret, so that `a-b` in `c` has the same as `a` in `b-c`. The only one that has a token
    /// keeps the secret; if that does not decide it, none gets it.
    ///
    /// Deviation: upstream lets them overwrite each other's tokens.
    fn find_collisions(&self, observed: &mut ObservedState) {
        let mut by_secret: BTreeMap<String, Vec<ServiceName>> = BTreeMap::new();
        for (service, _) in observed.services.iter().filter(|(_, state)| !state.tasks.is_empty()) {
            let secret = service.secret_name(&self.settings.secret_prefix);
            by_secret.entry(secret).or_default().push(service.clone());
        }
        for together in by_secret.into_values().filter(|services| services.len() > 1) {
            let has_token = |service: &&ServiceName| {
                observed.services.get(service).is_some_and(|state| !state.tokens.is_empty())
            };
            let mut owners = together.iter().filter(has_token);
            // `next` twice: exactly one owner, or none.
            let owner = owners.next().filter(|_| owners.next().is_none()).cloned();
            for service in together.iter().filter(|service| Some(*service) != owner.as_ref()) {
                if let Some(state) = observed.services.get_mut(service) {
                    state.collisions =
                        together.iter().filter(|it| *it != service).cloned().collect();
                }
            }
        }
    }

    pub(super) async fn observe_namespace(
        &self,
        namespace: &str,
        observed: &mut ObservedState,
    ) -> Result<()> {
        let read = |subject, text: &str| self.read_description(subject, text);
        self.observe_matching(namespace, observed, read).await
    }

    /// Does the same for the objects whose description `read` accepts as a service's.
    pub(super) async fn observe_matching(
        &self,
        namespace: &str,
        observed: &mut ObservedState,
        read: impl Fn(Subject, &str) -> Option<ServiceName> + Send,
    ) -> Result<()> {
        let options = self.tenancy.read(namespace);
        let policies = self.consul.acl_policies(&options).await;
        for policy in policies.map_err(Error::consul("listing policies"))?.value {
            if let Some(service) = read(Subject::Policy, &policy.description) {
                let found = Located { object: policy, namespace: namespace.to_owned() };
                observed.services.entry(service).or_default().policies.push(found);
            }
        }
        let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &options).await;
        for token in tokens.map_err(Error::consul("listing tokens"))?.value {
            observed.accessors.insert(token.accessor_id.clone());
            if let Some(service) = read(Subject::Token, &token.description) {
                let found = Located { object: token, namespace: namespace.to_owned() };
                observed.services.entry(service).or_default().tokens.push(found);
            } else if is_for_clients(&token) {
                observed.clients.push(token);
            }
        }
        Ok(())
    }

    pub(super) fn read_description(&self, subject: Subject, text: &str) -> Option<ServiceName> {
        let cluster = &self.settings.cluster;
        ServiceName::from_description(subject, text, cluster, self.with_partitions())
    }

    /// Observes the running tasks; `first` marks the first listing of a pass.
    ///
    /// A running task keeps every service that it ever had, because it got their tokens, until it
    /// loses the mesh tag.
    ///
    /// Deviation: upstream deletes the token of a running task when the tag with its name changes.
    pub(super) async fn observe_tasks(&self, first: bool) -> Result<Running> {
        let TaskListing { tasks, undescribed } = self.tasks.tasks().await?;
        let mut running = Running::default();
        // Taken out, so that what is left of `known` are tasks that are no longer listed.
        let mut memory = self.memory();
        let mut known = std::mem::take(&mut memory.services);
        let mut still = HashMap::with_capacity(tasks.len());
        for task in tasks.iter().filter(|task| !task.is_stopped()) {
            let mut services = known.remove(&task.arn).unwrap_or_default();
            if !mesh_task::is_meshed(task) {
                services.clear();
            }
            if let Some(service) = self.service_of(task, &mut running)
                && !services.contains(&service)
            {
                services.push(service);
            }
            running.add(&task.arn, &services);
            if !services.is_empty() && !task.arn.is_empty() {
                still.insert(task.arn.clone(), services);
            }
        }
        let doubtful = if first {
            memory.undescribed.next_pass(&undescribed)
        } else {
            memory.undescribed.again(&undescribed)
        };
        for arn in doubtful {
            match known.remove(&arn) {
                Some(services) => {
                    running.add(&arn, &services);
                    still.insert(arn, services);
                }
                None if still.contains_key(&arn) => {}
                None => running.undescribed.push(arn),
            }
        }
        memory.services = still;
        if !memory.undescribed.holds_up(running.undescribed.len(), first) {
            running.undescribed.clear();
        }
        Ok(running)
    }

    /// Returns the present service of a task.
    fn service_of(&self, task: &Task, running: &mut Running) -> Option<ServiceName> {
        if !mesh_task::is_meshed(task) {
            return None;
        }
        match ServiceName::of_task(task, self.tenancy.partition()) {
            Ok(Some(service)) => {
                running.meshed += 1;
                return Some(service);
            }
            Ok(None) => tracing::debug!(task.arn, "skipping task in external partition"),
            Err(error) => {
                tracing::debug!(task.arn, error = %error, "couldn't get service name from task");
                running.skipped += 1;
                running.problem.get_or_insert(Error::step(format!("task {}", task.arn), error));
            }
        }
        None
    }

    /// Remembers what later passes compare with.
    fn note(&self, observed: &ObservedState) {
        let running = &observed.running;
        let mut memory = self.memory();
        memory.pass += 1;
        memory.keep(|service| observed.services.contains_key(service));
        let surplus_known = |accessor: &String| observed.accessors.contains(accessor);
        memory.surplus.retain(|accessor, _| surplus_known(accessor));
        let policies = observed.services.values().flat_map(|state| &state.policies);
        let ids: HashSet<&str> = policies.map(|found| found.object.id.as_str()).collect();
        memory.rules.retain(|id, _| ids.contains(id.as_str()));
        // Logged on change only: the same task is skipped in every pass.
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
