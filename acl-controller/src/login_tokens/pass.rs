//! One pass over login tokens: set-up, observation, confirmation, removal.

use std::collections::HashSet;

use futures::{StreamExt as _, stream};

use super::{LoginTokens, listing::TaskState};
use crate::{Error, Report, Result, Writer, arn, mesh_task, outage::Outage};

impl LoginTokens {
    pub(super) async fn run_pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        let mut report = Report::default();
        if check {
            // Without the partition there is nothing to list.
            report.errors.extend(self.set_up(writer).await.err());
        }
        let observed = match self.observe().await {
            Ok(observed) => observed,
            Err(error) => {
                let error = Error::step("listing resources", error);
                // The set-up may have failed for the same reason; report both, so that the cause is
                // not lost.
                if report.errors.is_empty() {
                    return Err(error);
                }
                report.errors.push(error);
                return Err(Error::Several { errors: report.errors });
            }
        };
        (report.tasks, report.skipped) = (observed.meshed, observed.skipped);
        report.resources = observed.tasks.len();
        // Somebody deleted the node while services were still to be registered on it.
        if self.has_node() && !observed.node_exists {
            report.errors.extend(self.register_node(writer).await.err());
        }
        let namespaces = self
            .tenancy
            .reconcile_namespaces(
                self.consul(),
                writer,
                &observed.namespaces,
                &observed.needed_namespaces(),
            )
            .await;
        report.errors.extend(namespaces.err());
        let gone = observed.tasks.into_iter().filter(|(_, state)| !state.found).collect();
        match self.confirm_gone(gone).await {
            Ok(gone) => self.clean_up(writer, gone, &mut report).await,
            Err(error) => {
                report.errors.push(Error::step("listing resources before deleting", error));
            }
        }
        Ok(report)
    }

    /// Lists the tasks again before anything of theirs is removed, so that a list that misses a
    /// task that has just started, or is on its way from one page to another, does no harm.
    async fn confirm_gone(
        &self,
        mut gone: Vec<(String, TaskState)>,
    ) -> Result<Vec<(String, TaskState)>> {
        if gone.is_empty() {
            return Ok(gone);
        }
        let listing = self.tasks.tasks().await?;
        let doubtful = self.undescribed().again(&listing.undescribed);
        let running = listing.tasks.iter().filter(|task| mesh_task::is_meshed(task));
        let arns = running.map(|task| &task.arn).chain(&doubtful);
        let alive: HashSet<&str> = arns.filter_map(|arn| arn::task_id(arn).ok()).collect();
        gone.retain(|(id, _)| !alive.contains(id.as_str()));
        for (id, state) in &mut gone {
            self.drop_namesakes(id, state).await?;
        }
        Ok(gone)
    }

    /// Drops tokens that belong to a task of another cluster with the same name, in another region
    /// or account, as its services show.
    async fn drop_namesakes(&self, task: &str, state: &mut TaskState) -> Result<()> {
        let mut ours = Vec::with_capacity(state.tokens.len());
        for token in std::mem::take(&mut state.tokens) {
            let is_ours = match &token.named_for {
                None => true,
                // Without a service nothing shows the owner.
                Some(services) if services.is_empty() => false,
                Some(services) => {
                    self.has_no_foreign_task(task, services, &token.namespace).await?
                }
            };
            if is_ours {
                ours.push(token);
            }
        }
        state.tokens = ours;
        Ok(())
    }

    /// Returns `true` if no instance of these services is of a task with this id in another
    /// cluster.
    async fn has_no_foreign_task(
        &self,
        task: &str,
        services: &[String],
        namespace: &str,
    ) -> Result<bool> {
        let options = self.tenancy.read(namespace);
        for name in services {
            let found = self.consul.catalog_service(name, &options).await;
            let found = found.map_err(Error::consul(format!("reading service {name}")))?.value;
            let of_task = found.iter().filter(|instance| {
                instance.service_meta.get("task-id").is_some_and(|id| id == task)
            });
            let mut arns = of_task.filter_map(|instance| instance.service_meta.get("task-arn"));
            if arns.any(|task| !arn::is_task_of(task, &self.settings.cluster_arn)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the leftovers of tasks, several at a time. A failure does not stop the others,
    /// unless many in a row show an outage.
    pub(super) async fn clean_up(
        &self,
        writer: &Writer,
        gone: Vec<(String, TaskState)>,
        report: &mut Report,
    ) {
        let outage = Outage::default();
        let one = async |(id, state): (String, TaskState)| {
            if outage.is_on() {
                return None;
            }
            let done = self.remove_task(writer, &state).await;
            outage.note(&done);
            Some(done.map_err(|error| Error::step(format!("reconciling task {id}"), error)))
        };
        let removals = stream::iter(gone.into_iter().map(one));
        let outcomes: Vec<Option<Result<()>>> =
            removals.buffered(self.settings.concurrency.max(1)).collect().await;
        for outcome in outcomes {
            match outcome {
                None => report.postponed += 1,
                Some(done) => report.errors.extend(done.err()),
            }
        }
    }
}
