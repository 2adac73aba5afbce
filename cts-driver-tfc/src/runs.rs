//! The runs of one workspace: made, waited for, ended.

mod checks;
mod failure;
mod life;
mod log_positions;
mod logs;

use life::{AfterLook, Ending, Event};
use log_positions::Which;

pub(crate) use failure::applied;
pub(crate) use log_positions::Logs;

use std::{sync::OnceLock, time::Duration};

use consul_watch::{Backoff, Jitter, error_chain};
use cts_tasks::{RunContext, StopReason, Task};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::{
    Client, Error, Result,
    halt::{Halt, Step},
    mask::Mask,
    poll::Polls,
    settings::RunSettings,
    types::{
        NewRun, Phase, Run, RunAttributes, RunFilter, RunId, RunReport, RunStatus, WorkspaceId,
    },
};

/// Time that the platform may be away while a run goes on.
const AWAY: Duration = Duration::from_mins(10);

/// Time that the end of a run may hold up the end of the process.
const LEAVE: Duration = Duration::from_secs(3);

/// Number of times that a run is asked for that may or may not have been made.
const CREATIONS: u32 = 8;

/// Runs of one workspace, as one step of a driver deals with them.
pub(crate) struct Runs<'a> {
    pub(crate) client: Client,
    /// Address of the run of somebody else that this task waits behind.
    pub(crate) behind: OnceLock<String>,
    pub(crate) settings: &'a RunSettings,
    pub(crate) organization: &'a str,
    pub(crate) name: &'a str,
    pub(crate) workspace: &'a WorkspaceId,
    pub(crate) task: &'a Task,
    pub(crate) context: &'a RunContext,
    /// Position up to which the logs of the task's runs were reported.
    pub(crate) logs: &'a Logs,
    /// Values that no log may show.
    pub(crate) mask: &'a Mask,
}

/// Knowledge of a queued run about the one before it.
struct QueueWatch {
    /// Moment of the last look, or the beginning.
    since: Instant,
    /// Run that was found to wait then.
    seen: Option<RunId>,
}

/// End of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The run goes no further by itself.
    Settled,
    /// The run ended.
    Ended,
}

impl Runs<'_> {
    /// Returns the address at which a person can look at a run.
    pub(crate) fn url(&self, run: &RunId) -> String {
        self.client.run_url(self.organization, self.name, run.as_str())
    }

    /// Returns the beginning of the messages of this task's runs.
    fn mark(&self) -> String {
        format!("Consul-Terraform-Sync: task {} ", self.task.name)
    }

    /// Queues a run, once.
    ///
    /// One that seems to have failed is looked for before it is asked for again. A stop lets the
    /// request end, so that the run is known that has to be ended.
    pub(crate) async fn create(&self, mut new: NewRun, what: &str) -> Step<Run> {
        // In the message, which lists of runs give back; a run has no field for a key of ours.
        let token = format!("[cts:{}]", Uuid::new_v4());
        new.message = format!("{}{what} {token}", self.mark());
        self.context.permit.check().map_err(Halt::NotPermitted)?;
        let creating = self.create_once(&new, &token);
        // Pinned outside of the select, so that a stop does not drop a request under way.
        tokio::pin!(creating);
        let reason = tokio::select! {
            created = &mut creating => {
                let run = created?;
                self.report_created(&run);
                return Ok(run);
            }
            reason = self.context.stop.stopped() => reason,
        };
        // The answer is waited for only so long: the process has to end.
        match timeout(LEAVE, creating).await {
            Ok(Ok(run)) => Err(self.stopped(&run.id, reason).await),
            Ok(Err(_)) | Err(_) => Err(Halt::Stopped(reason)),
        }
    }

    async fn create_once(&self, new: &NewRun, token: &str) -> Result<Run> {
        // Slow, since a server that is overloaded may still make the run of the first request.
        let mut waits = Backoff::default()
            .with_initial(Duration::from_secs(1))
            .with_cap(Duration::from_mins(15))
            .with_jitter(Jitter::Extra(0.5));
        for _ in 0..CREATIONS {
            let error = match self.client.create_run(new).await {
                Err(error) if error.is_uncertain() => error,
                answer => return answer,
            };
            // Before the look, so that a run of the lost request has time to appear.
            let wait = waits.next_delay();
            tracing::warn!(
                task.name = %self.task.name,
                error = error_chain(&error),
                delay_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "cannot tell whether the run was created, looking for it"
            );
            sleep(wait).await;
            // Plan-only runs are not listed, and a second one does no harm.
            if new.plan_only != Some(true)
                && let Some(run) = self.named(token).await?
            {
                return Ok(run);
            }
        }
        // The last attempt's error is the outcome.
        self.client.create_run(new).await
    }

    /// Returns the run whose message holds this text.
    async fn named(&self, token: &str) -> Result<Option<Run>> {
        // The newest page will do: the run is minutes old.
        let runs = self.client.newest_runs(self.workspace).await?;
        let holds = |run: &Run| {
            run.attributes.message.as_deref().is_some_and(|message| message.contains(token))
        };
        Ok(runs.into_iter().find(holds))
    }

    fn report_created(&self, run: &Run) {
        let url = self.url(&run.id);
        tracing::info!(task.name = %self.task.name, run.id = %run.id, run.url = url, "run created");
        self.context.progress.report(&format!("run {} created: {url}", run.id));
    }

    /// Waits for a run, looking at it now and then.
    ///
    /// While the platform is away it is waited for too, up to ten minutes.
    pub(crate) async fn wait(
        &self,
        id: &RunId,
        first: &RunStatus,
        until: Until,
    ) -> Step<RunReport> {
        let mut polls = Polls::new(self.settings.poll_min, self.settings.poll_max);
        let started = Instant::now();
        let mut answered = started;
        let mut settled_since = None;
        let mut queue = QueueWatch { since: started, seen: None };
        let mut known = first.clone();
        // Whoever follows a run to its end knows already that it waits, so the first wait is a long
        // one.
        let phase = if until == Until::Ended { Phase::Waiting } else { Phase::Planning };
        let mut wait = polls.next(first, phase);
        loop {
            self.pause(id, wait).await?;
            let looked = tokio::select! {
                // Stop first: a look that is complete as well must not delay the end of the run.
                biased;
                reason = self.context.stop.stopped() => return Err(self.stopped(id, reason).await),
                looked = self.client.run(id) => looked,
            };
            match looked {
                Ok(report) => {
                    answered = Instant::now();
                    let attributes = &report.run.attributes;
                    // Before the status, so that the lines of a plan come before "planned".
                    self.report_logs(&report, Which::Ended).await;
                    self.notice(id, &mut known, &attributes.status);
                    self.report_logs(&report, Which::Growing).await;
                    let phase = attributes.phase();
                    let event = match phase {
                        Phase::Waiting if !self.really_waits(&report, &mut settled_since) => {
                            Event::Passing
                        }
                        Phase::Queued if self.is_behind(id, &mut queue).await? => Event::Behind,
                        _ => Event::Look,
                    };
                    let pace = match life::after_look(phase, event) {
                        AfterLook::Ended => return Ok(report),
                        AfterLook::Settled if until == Until::Settled => return Ok(report),
                        AfterLook::Settled => phase,
                        AfterLook::LookAgain(pace) => pace,
                    };
                    wait = polls.next(&attributes.status, pace);
                }
                Err(error) if error.is_retryable() && answered.elapsed() < AWAY => {
                    tracing::warn!(task.name = %self.task.name, run.id = %id, error = error_chain(&error), "cannot look at the run, trying again");
                    // At the pace of a run that goes on: the platform may be back at any moment.
                    wait = polls.next(&known, Phase::Planning);
                }
                Err(error) => return Err(error.into()),
            }
            // After a look, so that a run that ended in the last moment counts as ended.
            if let Some(limit) = self.settings.timeout.filter(|limit| started.elapsed() > *limit) {
                self.end_in_time(id).await;
                return Err(Halt::Failed(Error::Run {
                    workspace: self.name.to_owned(),
                    run: id.to_string(),
                    status: format!("did not end within {} s and was cancelled", limit.as_secs()),
                    url: self.url(id),
                    details: String::new(),
                    retryable: false,
                }));
            }
        }
    }

    /// Looks now and then for a run of somebody else that holds up a queued one.
    ///
    /// Returns `true` once it is known that a person has to act on it. With `discard_others` it is
    /// discarded instead.
    async fn is_behind(&self, own: &RunId, queue: &mut QueueWatch) -> Result<bool> {
        // Two more requests, and so not at each look at the own run.
        if queue.since.elapsed() < self.settings.poll_max {
            return Ok(self.behind.get().is_some());
        }
        queue.since = Instant::now();
        let found = match self.waiting_current(own).await {
            Ok(found) => found,
            // The state of the own run counts, and that was read.
            Err(error) if error.is_retryable() || error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(other) = found else { return Ok(false) };
        // Once is not enough: a run that is applied by itself passes through this state.
        if queue.seen.replace(other.id.clone()).as_ref() != Some(&other.id) {
            return Ok(false);
        }
        let url = self.url(&other.id);
        let message = other.attributes.message.as_deref().unwrap_or_default();
        let source = other.attributes.source.as_deref().unwrap_or("an unknown source");
        // Only on the operator's word: it is somebody else's change.
        if self.settings.discard_others {
            tracing::warn!(task.name = %self.task.name, run.id = %other.id, run.url = url, message, source, "discarding a run of somebody else that holds up the task, as discard_others says");
            self.discard(&other.id, "it held up Consul-Terraform-Sync").await?;
            return Ok(false);
        }
        // Reported once for each run of ours, however long it waits.
        if self.behind.set(url.clone()).is_ok() {
            tracing::warn!(task.name = %self.task.name, run.id = %other.id, run.url = url, message, source, "the task waits behind a run of somebody else until a person confirms or discards that");
            self.context.progress.report(&format!(
                "run {own} waits behind run {} ({message:?}, made by {source}), which waits for a \
                 person: {url}",
                other.id
            ));
        }
        Ok(true)
    }

    /// Returns the run that has the workspace and waits for a person, if it is another.
    async fn waiting_current(&self, own: &RunId) -> Result<Option<Run>> {
        let workspace = self.client.workspace(self.workspace).await?;
        let current: Option<RunId> = workspace.relationships.one::<RunAttributes>("current-run");
        let Some(current) = current.filter(|current| current != own) else { return Ok(None) };
        let run = self.client.run(&current).await?.run;
        Ok((run.attributes.phase() == Phase::Waiting).then_some(run))
    }

    /// Returns the error of a plan that was not made because of a run of somebody else.
    pub(crate) fn waits_behind(&self, id: &RunId, other: &str) -> Error {
        Error::Run {
            workspace: self.name.to_owned(),
            run: id.to_string(),
            status: "waits behind a run of somebody else: confirm or discard that, or set \
                     discard_others"
                .to_owned(),
            url: other.to_owned(),
            details: String::new(),
            retryable: true,
        }
    }

    /// Returns `false` while a run that is applied by itself passes through a state that looks like
    /// waiting for a person.
    fn really_waits(&self, report: &RunReport, since: &mut Option<Instant>) -> bool {
        let attributes = &report.run.attributes;
        let passing = matches!(
            attributes.status,
            RunStatus::Planned | RunStatus::CostEstimated | RunStatus::PolicyChecked
        );
        if !(passing && attributes.auto_apply) {
            return true;
        }
        // The platform never applies it then, and the wait would not end.
        if !attributes.permissions.can_apply {
            tracing::warn!(
                task.name = %self.task.name,
                run.id = %report.run.id,
                "the run waits although it should be applied by itself: the token may not apply"
            );
            return true;
        }
        // Ten looks: the platform takes moments from one state to the next.
        since.get_or_insert_with(Instant::now).elapsed() > self.settings.poll_min * 10
    }

    fn notice(&self, id: &RunId, known: &mut RunStatus, now: &RunStatus) {
        if known != now {
            tracing::debug!(task.name = %self.task.name, run.id = %id, run.status = %now, "run goes on");
            self.context.progress.report(&format!("run {id}: {now}"));
            known.clone_from(now);
        }
    }

    async fn pause(&self, id: &RunId, length: Duration) -> Step<()> {
        tokio::select! {
            biased;
            reason = self.context.stop.stopped() => Err(self.stopped(id, reason).await),
            () = sleep(length) => Ok(()),
        }
    }

    /// Ends a run of ours when this process stops, unless it applies already; it is left to the
    /// next leader if leadership was lost.
    ///
    /// Source: Consul documentation, Consul-Terraform-Sync, high availability, for the latter.
    pub(crate) async fn stopped(&self, id: &RunId, reason: StopReason) -> Halt {
        if reason == StopReason::LeadershipLost {
            tracing::info!(task.name = %self.task.name, run.id = %id, "the run is left to the new leader");
        } else {
            self.end_in_time(id).await;
        }
        Halt::Stopped(reason)
    }

    async fn end_in_time(&self, id: &RunId) {
        let ended = timeout(LEAVE, self.end(id, "Consul-Terraform-Sync stops"));
        match ended.await {
            Ok(Ok(true)) => {
                tracing::info!(task.name = %self.task.name, run.id = %id, "the run was ended");
            }
            Ok(Ok(false)) => {
                tracing::info!(task.name = %self.task.name, run.id = %id, "the run goes on without us");
            }
            Ok(Err(error)) => {
                tracing::warn!(task.name = %self.task.name, run.id = %id, error = error_chain(&error), "cannot end the run");
            }
            Err(_late) => {
                tracing::warn!(task.name = %self.task.name, run.id = %id, "the platform did not end the run in time");
            }
        }
    }

    /// Ends a run that does not apply yet; returns `true` if it did.
    pub(crate) async fn end(&self, id: &RunId, comment: &str) -> Result<bool> {
        let report = self.client.run(id).await?;
        let ended = match life::at_stop(report.run.attributes.phase()) {
            Ending::Discard => self.client.discard_run(id, comment).await,
            Ending::Cancel => self.client.cancel_run(id, comment).await,
            Ending::Leave => return Ok(false),
        };
        match ended {
            Ok(()) => Ok(true),
            // It has moved on meanwhile.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Discards a run that waits; returns `true` if it did.
    pub(crate) async fn discard(&self, id: &RunId, comment: &str) -> Result<bool> {
        match self.client.discard_run(id, comment).await {
            Ok(()) => Ok(true),
            // 409 and 404: it moved on, or is gone; both leave nothing to discard.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(false),
            Err(error) if error.is_uncertain() => {
                let report = self.client.run(id).await?;
                Ok(report.run.attributes.status == RunStatus::Discarded)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends all runs of this task that do not apply yet, and returns them.
    pub(crate) async fn end_leftovers(&self) -> Result<Vec<RunId>> {
        let mut ended = Vec::new();
        for run in self.client.runs(self.workspace, RunFilter::NonFinal).await? {
            let message = run.attributes.message.as_deref().unwrap_or_default();
            // Both marks: the task's name alone could stand in a person's message.
            let ours = message.starts_with(&self.mark()) && message.contains("[cts:");
            if ours && self.end(&run.id, SUPERSEDED).await? {
                tracing::info!(task.name = %self.task.name, run.id = %run.id, "ended a run whose creation had seemed to fail");
                ended.push(run.id);
            }
        }
        Ok(ended)
    }

    /// Discards the runs that this task left waiting in an earlier life of the process, and returns
    /// them.
    ///
    /// Runs of others are left alone.
    pub(crate) async fn discard_leftovers(&self) -> Result<Vec<RunId>> {
        let mut discarded = Vec::new();
        for run in self.client.runs(self.workspace, RunFilter::NonFinal).await? {
            let attributes = &run.attributes;
            let message = attributes.message.as_deref().unwrap_or_default();
            let ours = message.starts_with(&self.mark()) && message.contains("[cts:");
            // One that plans or applies already is left to end by itself.
            let waits = matches!(attributes.phase(), Phase::Waiting | Phase::Queued);
            if ours && waits && self.discard(&run.id, SUPERSEDED).await? {
                tracing::info!(task.name = %self.task.name, run.id = %run.id, "a run that waited was discarded, because there is something newer");
                discarded.push(run.id);
            }
        }
        Ok(discarded)
    }
}

/// Comment on a run of ours that is discarded.
pub(crate) const SUPERSEDED: &str = "superseded by newer data in Consul";
