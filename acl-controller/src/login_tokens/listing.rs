//! Observes the state for one pass: login tokens and services by the task that they belong to, and
//! the running tasks.

use std::collections::{BTreeMap, BTreeSet};

use consul_watch::{
    Clock as _, SystemClock,
    client::AclTokenFilter,
    types::{AclTokenEntry, Namespace},
};
use serde::Deserialize;

use super::LoginTokens;
use crate::{Error, Result, arn, mesh_task};

const PREFIX: &str = "token created via login: ";
/// State of one task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TaskState {
    /// `true` if ECS lists the task, and it has not stopped.
    pub(super) found: bool,
    pub(super) tokens: Vec<LoginToken>,
    pub(super) services: Vec<TaskService>,
    /// Namespace that the task belongs to.
    pub(super) namespace: Option<String>,
}

/// Token from a login, with the namespace in which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoginToken {
    pub(super) accessor: String,
    pub(super) namespace: String,
    /// Names of services that show whether a token with the cluster's name, not its ARN, is of this
    /// cluster; `None` for a token with the ARN.
    pub(super) named_for: Option<Vec<String>>,
}

/// Service on the cluster's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskService {
    pub(super) id: String,
    pub(super) namespace: Option<String>,
}

/// Observed state of Consul and ECS.
#[derive(Debug, Default)]
pub(super) struct ObservedState {
    /// Tasks by their ids.
    pub(super) tasks: BTreeMap<String, TaskState>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) node_exists: bool,
    pub(super) meshed: usize,
    pub(super) skipped: usize,
    /// Number of tasks that may be in this cluster's mesh, although nothing describes them.
    pub(super) undescribed: usize,
}

/// Origin of a token, from its description.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    task_id: String,
    cluster: String,
}

#[derive(Deserialize)]
struct Login {
    #[serde(default, rename = "consul.hashicorp.com/task-id", deserialize_with = "nullable")]
    task_id: String,
    #[serde(default, rename = "consul.hashicorp.com/cluster", deserialize_with = "nullable")]
    cluster: String,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Parses the text that a login wrote into a token's description.
fn origin(description: &str) -> Result<Origin> {
    let text = description.strip_prefix(PREFIX).unwrap_or(description).trim();
    if !text.starts_with('{') {
        return Err(Error::input("the token's description is not that of a login with metadata"));
    }
    let login: Login = serde_json::from_str(text)
        .map_err(|error| Error::input(format!("reading the token's description: {error}")))?;
    if login.task_id.is_empty() || login.cluster.is_empty() {
        return Err(Error::input("task or cluster missing from token description"));
    }
    Ok(Origin { task_id: login.task_id, cluster: login.cluster })
}

impl LoginTokens {
    /// Observes Consul, then the tasks: a token that is found without a task had none later either.
    pub(super) async fn observe(&self) -> Result<ObservedState> {
        let mut observed = self.observe_consul().await?;
        self.observe_tasks(&mut observed).await?;
        Ok(observed)
    }

    pub(super) async fn observe_consul(&self) -> Result<ObservedState> {
        let mut observed = ObservedState {
            namespaces: self.tenancy.namespaces(self.consul()).await?,
            ..ObservedState::default()
        };
        for namespace in observed.namespaces.clone() {
            let options = self.tenancy.read(&namespace.name);
            let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &options).await;
            for token in tokens.map_err(Error::consul("listing tokens"))?.value {
                self.add_token(&token, &namespace.name, &mut observed);
            }
        }
        if self.has_node() {
            self.observe_services(&mut observed).await?;
        }
        Ok(observed)
    }

    fn add_token(&self, token: &AclTokenEntry, namespace: &str, observed: &mut ObservedState) {
        // Only logins create such tokens; a description alone can be written by anyone.
        if token.auth_method.is_empty() {
            return;
        }
        match origin(&token.description) {
            Ok(origin) if self.is_ours(&origin, token) => {
                let services = token.service_identities.iter();
                let by_name = origin.cluster != self.settings.cluster_arn;
                let token = LoginToken {
                    accessor: token.accessor_id.clone(),
                    namespace: namespace.to_owned(),
                    named_for: by_name
                        .then(|| services.map(|it| it.service_name.clone()).collect()),
                };
                observed.tasks.entry(origin.task_id).or_default().tokens.push(token);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(token.accessor_id, error = %error, "passing a token over");
            }
        }
    }

    /// Returns `true` for a token of this cluster, or of one with its name: on EC2 the task
    /// metadata has the name alone, and logins of consul-ecs 0.5 and 0.6 wrote that into their
    /// tokens.
    fn is_ours(&self, origin: &Origin, token: &AclTokenEntry) -> bool {
        let arn = &self.settings.cluster_arn;
        let age = token.create_time.and_then(|made| SystemClock.now().duration_since(made).ok());
        origin.cluster == *arn
            || (arn::is_cluster_in_other_form(&origin.cluster, arn)
                && age.is_some_and(|age| age >= self.settings.named_token_age))
    }

    async fn observe_services(&self, observed: &mut ObservedState) -> Result<()> {
        // All namespaces of the partition at once.
        let options = self.tenancy.read("*");
        let found = self.consul.catalog_node_services(&self.settings.cluster_arn, &options).await;
        let found = found.map_err(Error::consul("listing services of the cluster's node"))?;
        let Some((_node, services)) = found.value else { return Ok(()) };
        observed.node_exists = true;
        for service in services {
            // Deviation: upstream ends the whole pass here.
            let Some(task_id) = service.meta.get("task-id").filter(|id| !id.is_empty()) else {
                tracing::debug!(service.id, "could not find taskID for the given service");
                continue;
            };
            let entry =
                TaskService { id: service.id.clone(), namespace: service.namespace.clone() };
            observed.tasks.entry(task_id.clone()).or_default().services.push(entry);
        }
        Ok(())
    }

    async fn observe_tasks(&self, observed: &mut ObservedState) -> Result<()> {
        let listing = self.tasks.tasks().await?;
        for task in listing.tasks.iter().filter(|task| !task.is_stopped()) {
            let id = match arn::task_id(&task.arn) {
                Ok(id) => id,
                Err(error) => {
                    tracing::debug!(error = %error, "passing a task over");
                    observed.skipped += 1;
                    continue;
                }
            };
            // A task that lost the tag has left the mesh: its tokens and services are removed.
            if !mesh_task::is_meshed(task) {
                continue;
            }
            let Some(ours) = self.tenancy.partition() else {
                observed.tasks.entry(id.to_owned()).or_default().found = true;
                observed.meshed += 1;
                continue;
            };
            match mesh_task::tenancy(task) {
                Ok(tenancy) if tenancy.partition == ours => {
                    let state = observed.tasks.entry(id.to_owned()).or_default();
                    state.found = true;
                    state.namespace = Some(tenancy.namespace);
                    observed.meshed += 1;
                }
                Ok(_) => tracing::debug!(task.arn, "skipping task in external partition"),
                Err(error) => {
                    tracing::debug!(task.arn, error = %error, "passing a task over");
                    observed.skipped += 1;
                    // The task is in the mesh all the same, and keeps the token that it got.
                    if let Some(state) = observed.tasks.get_mut(id) {
                        state.found = true;
                    }
                }
            }
        }
        // A task that cannot be described may run, so its token stays.
        let doubtful = self.undescribed().next_pass(&listing.undescribed);
        observed.undescribed = doubtful.len();
        for arn in doubtful {
            if let Ok(id) = arn::task_id(&arn)
                && let Some(state) = observed.tasks.get_mut(id)
            {
                state.found = true;
            }
        }
        Ok(())
    }
}

impl ObservedState {
    /// Returns the namespaces that running tasks need.
    pub(super) fn needed_namespaces(&self) -> BTreeSet<String> {
        let running = self.tasks.values().filter(|state| state.found);
        running.filter_map(|state| state.namespace.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_login_says_task_and_cluster() {
        let json =
            r#"{"consul.hashicorp.com/task-id":"t1","consul.hashicorp.com/cluster":"c1","x":"y"}"#;
        let expected = Origin { task_id: "t1".to_owned(), cluster: "c1".to_owned() };
        assert_eq!(origin(&format!("{PREFIX}{json}")).unwrap(), expected);
        assert_eq!(origin(json).unwrap(), expected);
        let error = origin(r#"{"consul.hashicorp.com/task-id":"t1"}"#).unwrap_err().to_string();
        assert_eq!(error, "task or cluster missing from token description");
        for other in ["", "Token for web service", "token created via login: {", "[1]", "null"] {
            assert!(origin(other).is_err(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_description_does_harm(text in "(?s).{0,160}") {
            drop(origin(&text));
            drop(origin(&format!("{PREFIX}{text}")));
        }
    }
}
