//! The way of a run through its states.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use serde_json::json;

use super::{
    TestTfc,
    double::Shared,
    state::{Findings, Hold, PolicyResult, Run, RunResult, State},
    state_versions::made_up_state,
    tool,
};
use crate::plan_json::{self, List};

/// Result of a step of a run.
pub(super) struct StepResult {
    pub(super) ok: bool,
    pub(super) log: String,
    pub(super) counts: [u64; 3],
    pub(super) changes: bool,
    pub(super) json: Option<serde_json::Value>,
    /// Plan without secrets, for Terraform's own commands.
    pub(super) redacted: Option<serde_json::Value>,
    /// State after an apply, as Terraform's own file.
    pub(super) state: Option<Bytes>,
}

/// Lets a run that was created go on by itself.
pub(super) fn begin(tfc: &TestTfc, id: String) {
    let life = Life { shared: Arc::downgrade(&tfc.shared), id };
    tokio::spawn(async move { life.live().await });
}

/// Sign that the run ended otherwise, or that the double is gone.
struct RunEnded;

struct Life {
    /// Weak, because a run must not keep the double alive.
    shared: Weak<Shared>,
    id: String,
}

impl Life {
    async fn live(&self) {
        let Err(RunEnded) = self.plan_and_apply().await else { return };
        tracing::trace!(run.id = self.id, "the run ended before its time");
    }

    async fn plan_and_apply(&self) -> Result<(), RunEnded> {
        // Runs that may apply wait for each other; plan-only ones do not.
        self.until(State::may_start).await?;
        self.enter("plan_queued")?;
        self.with(|state, id| {
            if let Some(run) = state.runs.get(id).filter(|run| !run.plan_only) {
                let workspace = run.workspace.clone();
                if let Some(workspace) = state.workspaces.get_mut(&workspace) {
                    workspace.current_run = Some(id.to_owned());
                }
            }
        })?;
        self.enter("planning")?;
        self.with(|state, id| begin_step(state, id, false))?;
        self.held(Hold::Planning).await?;
        let planned = self.step(false).await?;
        let (plan_only, empty_apply) = self.with(|state, id| {
            let run = state.runs.get(id);
            run.map_or((false, false), |run| (run.plan_only, run.allow_empty_apply))
        })?;
        let changes = planned.changes || empty_apply;
        self.finish(&planned, false)?;
        if !planned.ok {
            return self.enter("errored");
        }
        let policy = self.with(|state, id| {
            let workspace = state.runs.get(id).map(|run| run.workspace.clone());
            workspace.and_then(|id| state.workspaces.get(&id)).map(|workspace| workspace.policy)
        })?;
        self.find(policy.unwrap_or_default())?;
        self.judge_stage(plan_only).await?;
        match policy.unwrap_or_default() {
            PolicyResult::HardFailed => return self.enter("errored"),
            PolicyResult::SoftFailed if plan_only => return self.enter("policy_soft_failed"),
            _ if !changes || plan_only => return self.enter("planned_and_finished"),
            PolicyResult::SoftFailed => {
                self.enter("policy_override")?;
                self.until(|state, id| has(state, id, "policy_checked")).await?;
            }
            PolicyResult::Passed | PolicyResult::Overridden => self.enter("planned")?,
        }
        let (saved, by_itself) = self.with(|state, id| {
            state.runs.get(id).map_or((false, false), |run| (run.save_plan, run.auto_apply))
        })?;
        match (saved, by_itself) {
            (true, _) => self.enter("planned_and_saved")?,
            (false, true) => self.enter("confirmed")?,
            (false, false) => self.enter("planned")?,
        }
        self.until(|state, id| has(state, id, "confirmed")).await?;
        if saved {
            // The plan was waiting without the workspace's lock, which an apply needs.
            self.until(State::may_start).await?;
        }
        self.apply().await
    }

    async fn apply(&self) -> Result<(), RunEnded> {
        self.enter("apply_queued")?;
        self.enter("applying")?;
        self.with(|state, id| begin_step(state, id, true))?;
        self.held(Hold::Applying).await?;
        let applied = self.step(true).await?;
        self.finish(&applied, true)?;
        self.enter(if applied.ok { "applied" } else { "errored" })?;
        self.with(discard_saved_plans)
    }

    /// Notes the findings about the run after its plan.
    fn find(&self, policy: PolicyResult) -> Result<(), RunEnded> {
        self.with(|state, id| {
            let Some(run) = state.runs.get_mut(id) else { return };
            let Some(workspace) = state.workspaces.get(&run.workspace) else { return };
            run.findings = workspace.findings.clone();
            run.sentinel = match policy {
                PolicyResult::Passed => None,
                PolicyResult::SoftFailed => Some("soft_failed"),
                PolicyResult::HardFailed => Some("hard_failed"),
                PolicyResult::Overridden => Some("overridden"),
            };
        })
    }

    /// Passes the stage after the plan, with policies of OPA and a run task.
    async fn judge_stage(&self, plan_only: bool) -> Result<(), RunEnded> {
        let findings = self.with(|state, id| state.runs.get(id).map(|run| run.findings.clone()))?;
        let Some(Findings { opa, run_task, .. }) = findings else { return Ok(()) };
        if run_task.is_some_and(|(_, status, _)| status == "failed")
            || opa == Some(PolicyResult::HardFailed)
        {
            self.enter("errored")?;
            return Err(RunEnded);
        }
        if opa == Some(PolicyResult::SoftFailed) && !plan_only {
            self.enter("post_plan_awaiting_decision")?;
            self.until(|state, id| has(state, id, "post_plan_completed")).await?;
        }
        Ok(())
    }

    fn shared(&self) -> Result<Arc<Shared>, RunEnded> {
        self.shared.upgrade().ok_or(RunEnded)
    }

    fn with<T>(&self, look: impl FnOnce(&mut State, &str) -> T) -> Result<T, RunEnded> {
        let shared = self.shared()?;
        let result = look(&mut shared.state(), &self.id);
        Ok(result)
    }

    /// Enters a state, unless somebody ended the run.
    fn enter(&self, status: &str) -> Result<(), RunEnded> {
        let entered =
            self.with(|state, id| match (state.heeds_cancels(), state.runs.get_mut(id)) {
                // A cancellation takes effect here, between two states.
                (true, Some(run)) if run.cancel_asked && !run.is_final() => {
                    run.set_status("canceled");
                    for step in [&mut run.plan, &mut run.apply] {
                        if step.status == "running" {
                            step.end("canceled", "");
                        }
                    }
                    false
                }
                (_, Some(run)) if !run.is_final() => {
                    if run.status != status {
                        run.set_status(status);
                    }
                    true
                }
                _ => false,
            })?;
        self.shared()?.touch();
        if entered { Ok(()) } else { Err(RunEnded) }
    }

    /// Waits for a condition, or for the run's end.
    async fn until(&self, met: impl Fn(&State, &str) -> bool) -> Result<(), RunEnded> {
        // Subscribed before the look, so that no change in between is missed.
        let mut changed = self.shared()?.changed.subscribe();
        loop {
            let (over, cancelled) = self.with(|state, id| {
                let heeds = state.heeds_cancels();
                let run = state.runs.get(id);
                run.map_or((true, false), |run| (run.is_final(), run.cancel_asked && heeds))
            })?;
            if over {
                return Err(RunEnded);
            }
            if cancelled {
                self.enter("canceled")?;
                return Err(RunEnded);
            }
            if self.with(|state, id| met(state, id))? {
                return Ok(());
            }
            changed.changed().await.map_err(|_gone| RunEnded)?;
        }
    }

    async fn held(&self, at: Hold) -> Result<(), RunEnded> {
        self.until(|state, _| !state.holds.contains(&at)).await
    }

    /// Plans or applies, unless it is cancelled.
    async fn step(&self, apply: bool) -> Result<StepResult, RunEnded> {
        let shared = self.shared()?;
        let working = async {
            match &shared.tool {
                Some(path) => tool::run(&shared, path, &self.id, apply).await,
                None => made_up(&mut shared.state(), &self.id, apply),
            }
        };
        tokio::select! {
            done = working => Ok(done),
            // Never met, so that only the run's end completes it.
            over = self.until(|_, _| false) => {
                over?;
                Err(RunEnded)
            }
        }
    }

    fn finish(&self, done: &StepResult, apply: bool) -> Result<(), RunEnded> {
        self.with(|state, id| {
            let Some(run) = state.runs.get_mut(id) else { return };
            let step = if apply { &mut run.apply } else { &mut run.plan };
            step.end(if done.ok { "finished" } else { "errored" }, &done.log);
            step.counts = done.ok.then_some(done.counts);
            if !apply {
                run.has_changes = done.changes;
                run.json.clone_from(&done.json);
                run.redacted.clone_from(&done.redacted);
            }
            let workspace = run.workspace.clone();
            if let Some(left) = &done.state {
                state.add_state_version(&workspace, Some(id), left.clone());
            }
            // Only now, so that a waiting upload of the same archive stays the current one.
            if apply
                && let Some(version) = state.runs.get(id).map(|run| run.version.clone())
                && let Some(found) = state.workspaces.get_mut(&workspace)
            {
                found.current_version = Some(version);
            }
        })
    }
}

fn begin_step(state: &mut State, id: &str, apply: bool) {
    if let Some(run) = state.runs.get_mut(id) {
        let step = if apply { &mut run.apply } else { &mut run.plan };
        step.begin();
    }
}

/// Discards the saved plans of the workspace of a run that was applied: they are stale.
fn discard_saved_plans(state: &mut State, id: &str) {
    let Some(workspace) = state.runs.get(id).map(|run| run.workspace.clone()) else { return };
    for other in state.runs.values_mut() {
        if other.workspace == workspace && other.status == "planned_and_saved" {
            other.set_status("discarded");
        }
    }
}

/// Returns the step of a run whose result a test gives.
fn given(result: &RunResult, apply: bool) -> StepResult {
    let changes = plan_json::changes(&result.plan, List::Planned);
    let left = apply && !result.state.is_null();
    StepResult {
        ok: true,
        log: if apply { result.apply_log.clone() } else { result.plan_log.clone() },
        counts: [changes.add, changes.change, changes.destroy],
        changes: !changes.is_empty(),
        json: Some(result.plan.clone()),
        redacted: None,
        state: left.then(|| result.state.to_string().into()),
    }
}

fn has(state: &State, id: &str, status: &str) -> bool {
    state.runs.get(id).is_some_and(|run| run.status == status)
}

/// Returns a step without a tool, whose resources are made up.
fn made_up(state: &mut State, id: &str, apply: bool) -> StepResult {
    let nothing = StepResult {
        ok: true,
        log: String::new(),
        counts: [0; 3],
        changes: false,
        json: None,
        redacted: None,
        state: None,
    };
    let Some(run) = state.runs.get(id) else { return nothing };
    if let Some(result) = &run.result {
        return given(result, apply);
    }
    let serial = state
        .current_state_version(&run.workspace)
        .map_or(1, |id| state.stored.get(id).map_or(1, |version| version.serial + 1));
    let files = state.versions.get(&run.version).and_then(|version| version.content.clone());
    let wanted =
        if run.is_destroy { BTreeMap::new() } else { resources(run, &format!("{files:?}")) };
    let (refresh_only, workspace) = (run.refresh_only, run.workspace.clone());
    let Some(workspace) = state.workspaces.get_mut(&workspace) else { return nothing };
    let failure =
        if apply { workspace.fail_apply.pop_front() } else { workspace.fail_plan.pop_front() };
    if let Some(failure) = failure {
        return StepResult { ok: false, log: format!("Error: {failure}\n"), ..nothing };
    }
    let mut counts = [0; 3];
    let mut listed = Vec::new();
    if !refresh_only {
        let applied = &workspace.applied;
        let addresses: BTreeSet<&String> = wanted.keys().chain(applied.keys()).collect();
        for address in addresses {
            let (action, count) = match (applied.get(address), wanted.get(address)) {
                (None, Some(_)) => ("create", &mut counts[0]),
                (Some(before), Some(after)) if before != after => ("update", &mut counts[1]),
                (Some(_), None) => ("delete", &mut counts[2]),
                _ => continue,
            };
            *count += 1;
            listed.push(json!({"address": address, "change": {"actions": [action]}}));
        }
    }
    if apply {
        workspace.resources = u64::try_from(wanted.len()).unwrap_or(u64::MAX);
        workspace.applied = wanted;
    }
    let resources = workspace.resources;
    let [add, change, destroy] = counts;
    let log = format!("Plan: {add} to add, {change} to change, {destroy} to destroy.\n");
    let changes = !listed.is_empty();
    let json = Some(json!({ "resource_changes": listed }));
    let left = apply.then(|| made_up_state(serial, resources));
    StepResult { ok: true, log, counts, changes, json, redacted: None, state: left }
}

/// Returns one resource for each service instance; without services, one in all.
///
/// They change with every other value and with the files.
fn resources(run: &Run, files: &str) -> BTreeMap<String, String> {
    let mut values: BTreeMap<&str, &str> = run
        .snapshot
        .iter()
        .map(|variable| (variable.key.as_str(), variable.value.as_str()))
        .chain(run.variables.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        .collect();
    // A file of values replaces nothing here, but makes a difference.
    let services = values.remove("services");
    let rest = format!("{values:?} {files}");
    let Some(services) = services else {
        return BTreeMap::from([("made_up.resource".to_owned(), rest)]);
    };
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut address = String::new();
    // The form in which this driver writes the map of services, an instance for each key.
    for line in services.lines() {
        if let Some(key) = line.strip_prefix("  \"").and_then(|rest| rest.split('"').next()) {
            address = format!("made_up.instance[{key:?}]");
            found.insert(address.clone(), rest.clone());
        } else if let Some(content) = found.get_mut(&address).filter(|_| line.starts_with("    ")) {
            content.push_str(line);
        }
    }
    found
}
