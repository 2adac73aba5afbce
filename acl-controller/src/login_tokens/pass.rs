use futures::{StreamExt as _, stream};

use super::{LoginTokens, listing::TaskState};
use crate::{Error, Report, Result, Writer, outage::Outage};

impl LoginTokens {
    pub(super) async fn run_pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        let picture = self.look().await.map_err(|error| Error::step("listing resources", error))?;
        let mut report = Report {
            tasks: picture.meshed,
            skipped: picture.skipped,
            resources: picture.tasks.len(),
            ..Report::default()
        };
        if check {
            report.errors.extend(self.set_up(writer).await.err());
        }
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
        let gone = picture.tasks.into_iter().filter(|(_, state)| !state.found);
        self.clean_up(writer, gone.collect(), &mut report).await;
        Ok(report)
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
