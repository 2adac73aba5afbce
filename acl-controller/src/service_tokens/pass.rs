//! One pass over service tokens: observe, decide, confirm deletions, work, clean up.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};

use super::{
    ServiceTokens, TokenRights,
    decision::{Need, decide},
    listing::{ObservedState, ServiceState},
    secret::no_secret,
};
use crate::{
    Error, Report, Result, Writer, outage::Outage, secret_store::SecretVersion,
    service_name::ServiceName,
};

type Versions = BTreeMap<String, SecretVersion>;

/// Outcome for one service.
enum Outcome {
    Done,
    /// Has no secret, which was reported before.
    Waiting,
    PutOff,
    Failed(Error),
}

impl ServiceTokens {
    pub(super) async fn run_pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        if check {
            // Without the partition there is nothing to list.
            self.tenancy.ensure_partition(self.consul(), writer).await?;
        }
        let observed =
            self.observe().await.map_err(|error| Error::step("listing resources", error))?;
        let mut report = Report {
            tasks: observed.running.meshed,
            skipped: observed.running.skipped,
            resources: observed.services.len(),
            ..Report::default()
        };
        report.errors.extend(self.keep_client_token(writer, &observed, check).await.err());
        report.errors.extend(self.reconcile_namespaces(writer, &observed).await.err());
        // One list call tells which secrets changed, instead of a read for each.
        let versions = if check {
            match self.secrets.versions(&format!("{}-", self.settings.secret_prefix)).await {
                Ok(versions) => versions.unwrap_or_default(),
                Err(error) => {
                    report.errors.push(Error::step("listing secrets", error));
                    Versions::new()
                }
            }
        } else {
            Versions::new()
        };
        let work = self.plan(&observed, &versions, check, &mut report).await;
        self.work_off(writer, work, check, &mut report).await;
        self.remove_surplus(writer, &observed, &mut report).await;
        Ok(report)
    }

    async fn reconcile_namespaces(&self, writer: &Writer, observed: &ObservedState) -> Result<()> {
        let needed: BTreeSet<String> = observed
            .services
            .iter()
            .filter(|(_, state)| !state.tasks.is_empty())
            .filter_map(|(service, _)| Some(service.tenancy.as_ref()?.1.clone()))
            .collect();
        self.tenancy
            .reconcile_namespaces(self.consul(), writer, &observed.namespaces, &needed)
            .await
    }

    /// Returns the services that need something, in the order of their names.
    async fn plan(
        &self,
        observed: &ObservedState,
        versions: &Versions,
        check: bool,
        report: &mut Report,
    ) -> Vec<(ServiceName, ServiceState, Need)> {
        let mut work = Vec::new();
        // A scope of its own: the lock must not be held across the await below.
        {
            let memory = self.memory();
            for (service, state) in &observed.services {
                let current = versions.get(&service.secret_name(&self.settings.secret_prefix));
                let verified = memory.verified(service);
                let mut need =
                    decide(state, verified, current, check, (self.settings.rights, service));
                let failed = memory.failing.contains_key(service);
                if need == Need::Nothing && ((check && !memory.knows_rules(state)) || failed) {
                    // A service that failed before is compared even if its lists look right: the
                    // failure may have left a secret half done.
                    need = if state.tasks.is_empty() { Need::Nothing } else { Need::Check };
                }
                if need == Need::Nothing {
                    continue;
                }
                if memory.is_put_off(service) {
                    report.postponed += 1;
                } else {
                    work.push((service.clone(), state.clone(), need));
                }
            }
        }
        if work.iter().any(|(_, _, need)| *need == Need::Delete) {
            self.confirm_deletes(observed, &mut work, report).await;
        }
        let resume_at = self.memory().resume_at.take();
        if let Some(resume_at) = resume_at {
            // An outage that ended the last pass early must not always hit the same services.
            let at = work.partition_point(|(service, _, _)| *service < resume_at);
            work.rotate_left(at);
        }
        work
    }

    /// Lists the tasks again before anything is deleted.
    async fn confirm_deletes(
        &self,
        observed: &ObservedState,
        work: &mut Vec<(ServiceName, ServiceState, Need)>,
        report: &mut Report,
    ) {
        let running = match self.observe_tasks(false).await {
            Ok(running) => running,
            Err(error) => {
                report.errors.push(Error::step("listing resources before deleting", error));
                // Without a second listing nothing is deleted; everything else goes on.
                work.retain(|(_, _, need)| *need != Need::Delete);
                return;
            }
        };
        let doubtful = observed.running.undescribed.len() + running.undescribed.len();
        let before = work.len();
        work.retain(|(service, _, need)| {
            *need != Need::Delete || (doubtful == 0 && !running.services.contains_key(service))
        });
        if doubtful > 0 {
            report.postponed += before - work.len();
        }
    }

    /// Reconciles the services, several at a time. A failure does not stop the others, unless many
    /// in a row show an outage.
    async fn work_off(
        &self,
        writer: &Writer,
        work: Vec<(ServiceName, ServiceState, Need)>,
        check: bool,
        report: &mut Report,
    ) {
        let outage = Outage::default();
        let one = async |(service, state, need): (ServiceName, ServiceState, Need)| {
            if outage.is_on() {
                return (service, Outcome::PutOff);
            }
            let done = self.reconcile(writer, &service, &state, need, check).await;
            outage.note(&done);
            (service, done.unwrap_or_else(Outcome::Failed))
        };
        let mut outcomes = Vec::with_capacity(work.len());
        // In order, so that `resume_at` is the first service that was not reached.
        let mut stream =
            stream::iter(work.into_iter().map(one)).buffered(self.settings.concurrency.max(1));
        while let Some(outcome) = stream.next().await {
            outcomes.push(outcome);
        }
        drop(stream);
        let mut memory = self.memory();
        for (service, outcome) in outcomes {
            match outcome {
                Outcome::Done => {}
                Outcome::Waiting => {
                    memory.failed(&service);
                    report.postponed += 1;
                }
                Outcome::PutOff => {
                    report.postponed += 1;
                    memory.resume_at.get_or_insert(service);
                }
                Outcome::Failed(error) => {
                    memory.failed(&service);
                    report
                        .errors
                        .push(Error::step(format!("reconciling service {service}"), error));
                }
            }
        }
    }

    async fn reconcile(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
        need: Need,
        check: bool,
    ) -> Result<Outcome> {
        match need {
            Need::Nothing => Ok(Outcome::Done),
            Need::Delete => {
                // Before the token is deleted: a task that starts now must not get the dying secret
                // id.
                self.retire_ids(writer, service, state).await?;
                // The secret holds the ids of a token to come, no longer those of the known one.
                self.memory().forget(service);
                self.delete(writer, state).await.map(|()| Outcome::Done)
            }
            Need::Check | Need::Upsert => self.upsert(writer, service, state, check).await,
        }
    }

    /// Writes policy, secret, token, in this order, so that the next pass completes a pass that
    /// breaks off anywhere.
    ///
    /// Nothing is created without a secret; a missing one is reported as an error once between two
    /// slower checks.
    async fn upsert(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
        check: bool,
    ) -> Result<Outcome> {
        self.refuse_shared_secret(service, state)?;
        let name = service.secret_name(&self.settings.secret_prefix);
        let Some(stored) = self.find_secret(&name).await? else {
            let is_new = self.memory().secretless.insert(service.clone());
            return if is_new || check { Err(no_secret(&name)) } else { Ok(Outcome::Waiting) };
        };
        let policy = match self.settings.rights {
            TokenRights::Policy => {
                Some(self.ensure_service_policy(writer, service, state, check).await?)
            }
            TokenRights::ServiceIdentity => None,
        };
        let verified =
            self.ensure_ids_and_token(writer, service, state, (policy, stored, check)).await?;
        self.memory().succeeded(service, verified);
        Ok(Outcome::Done)
    }
}
