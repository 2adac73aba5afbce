//! One pass over login tokens: setting up, looking, confirming, cleaning up.

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
        let picture = match self.look().await {
            Ok(picture) => picture,
            Err(error) => {
                let error = Error::step("listing resources", error);
                if report.errors.is_empty() {
                    return Err(error);
                }
                report.errors.push(error);
                return Err(Error::Several { errors: report.errors });
            }
        };
        (report.tasks, report.skipped) = (picture.meshed, picture.skipped);
        report.resources = picture.tasks.len();
        if self.has_node() && !picture.node_exists {
            report.errors.extend(self.register_node(writer).await.err());
        }
        let namespaces = self
            .tenancy
            .reconcile_namespaces(
                self.consul(),
                writer,
                &picture.namespaces,
                &picture.needed_namespaces(),
            )
            .await;
        report.errors.extend(namespaces.err());
        let gone = picture.tasks.into_iter().filter(|(_, state)| !state.found).collect();
        match self.confirm_gone(gone).await {
            Ok(gone) => self.clean_up(writer, gone, &mut report).await,
            Err(error) => {
                report.errors.push(Error::step("listing resources before deleting", error));
            }
        }
        Ok(report)
    }

    /// Looks at the tasks once more before anything of theirs is removed: a list in which one that
    /// has just started, or is on its way from one page to another, is missing does no harm.
    async fn confirm_gone(
        &self,
        mut gone: Vec<(String, TaskState)>,
    ) -> Result<Vec<(String, TaskState)>> {
        if gone.is_empty() {
            return Ok(gone);
        }
        let listing = self.tasks.tasks().await?;
        let doubtful = self.doubts().again(&listing.undescribed);
        let running = listing.tasks.iter().filter(|task| mesh_task::is_meshed(task));
        let arns = running.map(|task| &task.arn).chain(&doubtful);
        let alive: HashSet<&str> = arns.filter_map(|arn| arn::task_id(arn).ok()).collect();
        gone.retain(|(id, _)| !alive.contains(id.as_str()));
        for (id, state) in &mut gone {
            self.drop_namesakes(id, state).await?;
        }
        Ok(gone)
    }

    /// Leaves tokens alone that belong to a task of another cluster with the same name, in another
    /// region or account: its services say so.
    async fn drop_namesakes(&self, task: &str, state: &mut TaskState) -> Result<()> {
        let mut ours = Vec::with_capacity(state.tokens.len());
        for token in std::mem::take(&mut state.tokens) {
            let is_ours = match &token.named_for {
                None => true,
                // Without a service nothing tells whose it is.
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

    /// Returns `true` if no instance of these services is of a task with this id in another cluster.
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

    /// Removes what is left of tasks, some at a time. One that fails does not stop the others,
    /// unless many in a row say that nothing would succeed.
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
