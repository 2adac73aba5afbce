//! Task source on Amazon ECS.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_ecs::{
    Client,
    types::{DesiredStatus, Task as EcsTask, TaskField},
};

use super::{
    call::{CallError, paced},
    pages::{Circle, Pages},
};
use crate::{
    Error, Result, TaskSource,
    task::{Task, TaskListing, Undescribed},
};

/// Largest number of tasks that `DescribeTasks` accepts.
const BATCH: usize = 100;
/// Reason with which `DescribeTasks` reports a task that ECS does not have.
const MISSING: &str = "MISSING";

/// Tasks of one ECS cluster.
///
/// A listing takes one `ListTasks` for each 100 tasks and desired status, and one `DescribeTasks`
/// for each 100 tasks. ECS lists stopped tasks for an hour; these are described, too, since only
/// the description tells whether they have really stopped.
///
/// Source: `ListTasks` and `DescribeTasks` in the API reference of Amazon ECS.
/// Deviation: upstream counts a task as gone as soon as it begins to stop.
#[derive(Debug, Clone)]
pub struct EcsTasks {
    client: Client,
    cluster: String,
    throttle_patience: Duration,
}

impl EcsTasks {
    pub(super) fn new(client: Client, cluster: String, throttle_patience: Duration) -> Self {
        Self { client, cluster, throttle_patience }
    }

    async fn add(&self, status: &DesiredStatus, found: &mut Found) -> Result<()> {
        let mut pages = Pages::default();
        loop {
            let request = self
                .client
                .list_tasks()
                .cluster(&self.cluster)
                .desired_status(status.clone())
                .set_next_token(pages.token());
            let page = paced(self.throttle_patience, || request.clone().send())
                .await
                .map_err(|error| self.failed("listing", error))?;
            // A page may be empty without being the last.
            for arns in page.task_arns().chunks(BATCH) {
                self.describe(status, arns, found).await?;
            }
            match pages.advance(page.next_token) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Circle) => {
                    let problem = format!(
                        "listing tasks of the cluster {}: ECS gives a page again",
                        self.cluster
                    );
                    return Err(Error::Input { problem });
                }
            }
        }
    }

    async fn describe(
        &self,
        status: &DesiredStatus,
        arns: &[String],
        found: &mut Found,
    ) -> Result<()> {
        let request = self
            .client
            .describe_tasks()
            .cluster(&self.cluster)
            .set_tasks(Some(arns.to_vec()))
            // Tags are left out of the description unless asked for, and the whole mesh membership
            // is in them.
            .include(TaskField::Tags);
        let answer = paced(self.throttle_patience, || request.clone().send())
            .await
            .map_err(|error| self.failed("describing", error))?;
        let mut unanswered: BTreeSet<&str> = arns.iter().map(String::as_str).collect();
        for failure in answer.failures() {
            let arn = failure.arn().unwrap_or_default();
            unanswered.remove(arn);
            let reason = failure.reason().unwrap_or("no reason given");
            // ECS forgets a task an hour after it has stopped, also between the two calls. A task
            // that is meant to run is never reported so.
            if reason == MISSING && *status == DesiredStatus::Stopped {
                tracing::debug!(task.arn = arn, "a stopped task was forgotten meanwhile");
            } else {
                found.undescribed(arn, reason);
            }
        }
        for task in answer.tasks.unwrap_or_default() {
            unanswered.remove(task.task_arn().unwrap_or_default());
            found.described(task);
        }
        // Neither described nor refused: as good as refused, since a missing task would lose its
        // token.
        for arn in unanswered {
            found.undescribed(arn, "not in the answer");
        }
        Ok(())
    }

    fn failed(&self, doing: &str, error: CallError) -> Error {
        error.during(format!("{doing} tasks of the cluster {}", self.cluster))
    }
}

#[async_trait]
impl TaskSource for EcsTasks {
    async fn tasks(&self) -> Result<TaskListing> {
        let mut found = Found::default();
        // This order: a task on its way from one list to the other is then in at least one of them.
        for status in [DesiredStatus::Running, DesiredStatus::Stopped] {
            self.add(&status, &mut found).await?;
        }
        Ok(found.into_listing())
    }
}

/// Tasks found so far. A task that began to stop meanwhile is in both lists; the later description
/// counts.
#[derive(Debug, Default)]
struct Found {
    tasks: BTreeMap<String, Task>,
    nameless: Vec<Task>,
    undescribed: BTreeMap<String, String>,
}

impl Found {
    fn described(&mut self, task: EcsTask) {
        let task = described(task);
        self.undescribed.remove(&task.arn);
        if task.arn.is_empty() {
            self.nameless.push(task);
        } else {
            self.tasks.insert(task.arn.clone(), task);
        }
    }

    fn undescribed(&mut self, arn: &str, reason: &str) {
        self.undescribed.insert(arn.to_owned(), reason.to_owned());
    }

    fn into_listing(self) -> TaskListing {
        let Self { tasks, nameless, undescribed } = self;
        let all = tasks.into_values().chain(nameless);
        let mut listing = TaskListing::new(all.filter(|task| !task.is_stopped()).collect());
        listing.undescribed =
            undescribed.into_iter().map(|(arn, reason)| Undescribed::new(arn, reason)).collect();
        listing
    }
}

fn described(task: EcsTask) -> Task {
    let mut known =
        Task::new(task.task_arn.unwrap_or_default(), task.task_definition_arn.unwrap_or_default())
            .with_last_status(task.last_status.unwrap_or_default());
    for tag in task.tags.unwrap_or_default() {
        if let Some(key) = tag.key {
            known = known.with_tag(key, tag.value.unwrap_or_default());
        }
    }
    known
}
