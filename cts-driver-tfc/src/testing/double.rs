//! The double itself: how a test sets it up, plays the person at the platform, and looks at what
//! happened.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};

use super::{
    clock,
    faults::{ActiveFault, Fault},
    run_routes,
    serve::ServedTfc,
    state::{Hold, PolicyResult, Recorded, RunResult, RunVariables, RunView, State, Workspace},
    state_versions::made_up_state,
};
use crate::{Client, ClientOptions, ExchangeError, Platform};

/// In-process Terraform Cloud with one organization, `my-org`, and one token, `a-team-token`.
///
/// Clones share everything.
#[derive(Clone)]
pub struct TestTfc {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: watch::Sender<u64>,
    pub(super) tool: Option<PathBuf>,
    pub(super) folder: Option<tempfile::TempDir>,
    pub(super) limit: Option<u32>,
    pub(super) release: Option<String>,
    force_cancel_after: Duration,
    /// First lines of the tool's logs, which need its version.
    pub(super) banner: OnceCell<String>,
}

/// Builder of a [`TestTfc`].
#[derive(Debug, Default)]
#[must_use]
pub struct TestTfcBuilder {
    tool: Option<PathBuf>,
    limit: Option<u32>,
    release: Option<String>,
    force_cancel_after: Duration,
}

impl TestTfcBuilder {
    /// Runs this `tofu` or `terraform` on what is uploaded.
    pub fn tool(mut self, path: impl Into<PathBuf>) -> Self {
        self.tool = Some(path.into());
        self
    }

    /// Turns requests away that are more than this number in a second.
    pub fn rate_limit(mut self, requests_per_second: u32) -> Self {
        self.limit = Some(requests_per_second);
        self
    }

    /// Answers as this release of Terraform Enterprise, such as `v202308-1`.
    pub fn release(mut self, release: impl Into<String>) -> Self {
        self.release = Some(release.into());
        self
    }

    /// Lets runs be ended by force this long after they were cancelled; at once by default.
    pub fn force_cancel_after(mut self, cool_off: Duration) -> Self {
        self.force_cancel_after = cool_off;
        self
    }

    /// Starts the double.
    ///
    /// # Panics
    ///
    /// Panics if there is a tool and no folder can be made for its files.
    #[expect(clippy::expect_used, reason = "a test double reports a broken machine at once")]
    pub fn build(self) -> TestTfc {
        let folder = self.tool.is_some().then(|| tempfile::tempdir().expect("a folder for runs"));
        let shared = Shared {
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            tool: self.tool,
            folder,
            limit: self.limit,
            release: self.release,
            force_cancel_after: self.force_cancel_after,
            banner: OnceCell::new(),
        };
        TestTfc { shared: Arc::new(shared) }
    }
}

impl Default for TestTfc {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl fmt::Debug for TestTfc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestTfc").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everybody who waits for a change.
    pub(super) fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl TestTfc {
    /// Organization that it has.
    pub const ORGANIZATION: &'static str = "my-org";
    /// Token that it takes.
    pub const TOKEN: &'static str = "a-team-token";

    /// Creates a platform that makes runs up, without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a builder.
    pub fn builder() -> TestTfcBuilder {
        TestTfcBuilder::default()
    }

    /// Returns a client in memory, with default options.
    pub fn client(&self) -> Client {
        let options = ClientOptions::default();
        Client::with_platform(Arc::new(self.clone()), options, Self::TOKEN.to_owned().into())
    }

    /// Serves it on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// The error of the system if there is no port.
    pub async fn serve(&self) -> std::io::Result<ServedTfc> {
        ServedTfc::start(self.clone(), 0).await
    }

    /// Serves it over TLS on a free port of `localhost`, with an authority of its own, as Terraform
    /// itself needs it.
    ///
    /// # Errors
    ///
    /// The error of the system if there is no port, and one of the certificate's making.
    pub async fn serve_tls(&self) -> std::io::Result<ServedTfc> {
        ServedTfc::start_tls(self.clone()).await
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.shared.touch();
        result
    }

    /// Makes the next `times` requests go wrong whose path holds `path`.
    pub fn inject(&self, method: Option<Method>, path: &str, fault: Fault, times: usize) {
        let fault = ActiveFault { method, path: path.to_owned(), fault, left: times };
        self.state().faults.push(fault);
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state().requests.clone()
    }

    /// Holds runs up at this point, until [`TestTfc::release`].
    pub fn hold(&self, at: Hold) {
        self.change(|state| state.holds.insert(at));
    }

    /// Lets runs go on.
    pub fn release(&self, at: Hold) {
        self.change(|state| state.holds.remove(&at));
    }

    /// Adds to the log of the step that a run is in, as Terraform does while it works.
    pub fn write_log(&self, run: &str, text: &str) {
        self.change(|state| {
            let Some(run) = state.runs.get_mut(run) else { return };
            let applies = run.apply.status == "running";
            (if applies { &mut run.apply } else { &mut run.plan }).write(text);
        });
    }

    /// Adds an agent pool and returns its id.
    pub fn add_pool(&self, name: &str) -> String {
        self.change(|state| {
            let id = state.id("apool");
            state.pools.insert(name.to_owned(), id.clone());
            id
        })
    }

    /// Adds a workspace as a person would, with these attributes over the defaults and these tags;
    /// returns its id.
    pub fn add_workspace(&self, name: &str, attributes: &Value, tags: &[&str]) -> String {
        self.change(|state| {
            let id = state.id("ws");
            let mut workspace = Workspace { name: name.to_owned(), ..Workspace::default() };
            (workspace.created_at, workspace.updated_at) = (clock::now(), clock::now());
            workspace.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            let resources = attributes.get("resource-count").and_then(Value::as_u64);
            workspace.resources = resources.unwrap_or_default();
            let defaults =
                json!({"auto-apply": false, "execution-mode": "remote", "locked": false});
            for (key, value) in
                defaults.as_object().into_iter().chain(attributes.as_object()).flatten()
            {
                workspace.attributes.insert(key.clone(), value.clone());
            }
            state.workspaces.insert(id.clone(), workspace);
            id
        })
    }

    /// Changes an attribute of a workspace as a person would.
    pub fn set_attribute(&self, workspace: &str, name: &str, value: Value) {
        self.with_workspace(workspace, |found| {
            found.attributes.insert(name.to_owned(), value);
        });
    }

    /// Sets the result of policies of Sentinel for the runs of a workspace.
    pub fn set_policy(&self, workspace: &str, policy: PolicyResult) {
        self.with_workspace(workspace, |found| found.policy = policy);
    }

    /// Gives the runs of a workspace a cost estimate, in US dollars a month: after an apply, and
    /// the change.
    pub fn set_costs(&self, workspace: &str, proposed: &str, delta: &str) {
        let costs = Some((proposed.to_owned(), delta.to_owned()));
        self.with_workspace(workspace, |found| found.findings.costs = costs);
    }

    /// Sets the result of policies of OPA for the runs of a workspace.
    ///
    /// One that fails softly holds the run up until [`TestTfc::override_policy`].
    pub fn set_opa(&self, workspace: &str, result: PolicyResult) {
        self.with_workspace(workspace, |found| found.findings.opa = Some(result));
    }

    /// Gives the runs of a workspace a mandatory run task after the plan with this status (`passed`
    /// or `failed`) and message; a failed one ends the run.
    pub fn set_run_task(&self, workspace: &str, name: &str, status: &str, message: &str) {
        let task = Some((name.to_owned(), status.to_owned(), message.to_owned()));
        self.with_workspace(workspace, |found| found.findings.run_task = task);
    }

    /// Gives a workspace a variable as a person would, with these attributes.
    pub fn add_variable(&self, workspace: &str, attributes: &Value) {
        let id = self.change(|state| state.id("var"));
        let attributes = attributes.as_object().cloned().unwrap_or_default();
        self.with_workspace(workspace, |found| drop(found.variables.insert(id, attributes)));
    }

    /// Gives a workspace a state, as a person who uploads one would.
    pub fn add_state(&self, workspace: &str) {
        self.change(|state| {
            let found = state.workspace_named(workspace).map(|(id, _)| id.clone());
            if let Some(id) = found {
                state.add_state_version(&id, None, made_up_state(1, 0));
            }
        });
    }

    /// Gives a workspace a run that has ended, as somebody else would have left it.
    pub fn add_past_run(&self, workspace: &str) {
        let id = self.change(|state| state.id("run"));
        self.with_workspace(workspace, |found| found.current_run = Some(id));
    }

    /// Makes the next plan of a workspace fail, where runs are made up.
    pub fn fail_plan(&self, workspace: &str, message: &str) {
        self.with_workspace(workspace, |found| found.fail_plan.push_back(message.to_owned()));
    }

    /// Makes the next apply of a workspace fail, where runs are made up.
    pub fn fail_apply(&self, workspace: &str, message: &str) {
        self.with_workspace(workspace, |found| found.fail_apply.push_back(message.to_owned()));
    }

    /// Gives the next run of a workspace this result, where runs are made up.
    pub fn give_result(&self, workspace: &str, result: RunResult) {
        self.with_workspace(workspace, |found| found.results.push_back(result));
    }

    /// Returns the newest state of a workspace, as Terraform's own file.
    pub fn current_state(&self, workspace: &str) -> Option<Bytes> {
        let state = self.state();
        let (id, _) = state.workspace_named(workspace)?;
        state.current_state(id)
    }

    /// Deletes a workspace as a person would.
    pub fn delete_workspace(&self, name: &str) {
        self.change(|state| state.workspaces.retain(|_, workspace| workspace.name != name));
    }

    /// Replaces the token that it takes; the one before is refused from now on.
    pub fn set_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    pub(super) fn token(&self) -> String {
        self.state().token.clone().unwrap_or_else(|| Self::TOKEN.to_owned())
    }

    /// Ignores the variables of runs, as old releases do.
    pub fn ignore_run_variables(&self) {
        self.state().run_variables = RunVariables::Ignored;
    }

    /// Refuses runs that have variables, as a release may that does not know them.
    pub fn refuse_run_variables(&self) {
        self.state().run_variables = RunVariables::Refused;
    }

    /// Returns the names of all workspaces, in alphabetical order.
    pub fn workspaces(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.state().workspaces.values().map(|workspace| workspace.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns an attribute of a workspace.
    pub fn attribute(&self, workspace: &str, name: &str) -> Option<Value> {
        let state = self.state();
        let (_, found) = state.workspace_named(workspace)?;
        found.attributes.get(name).cloned()
    }

    /// Returns the tags of a workspace.
    pub fn tags(&self, workspace: &str) -> Vec<String> {
        let state = self.state();
        state.workspace_named(workspace).map(|(_, found)| found.tags.clone()).unwrap_or_default()
    }

    /// Returns the value of a variable, also of a sensitive one.
    pub fn variable(&self, workspace: &str, key: &str) -> Option<String> {
        let state = self.state();
        let (_, found) = state.workspace_named(workspace)?;
        let mut variables = found.variables.values();
        let variable = variables.find(|variable| variable.get("key") == Some(&json!(key)))?;
        variable.get("value")?.as_str().map(str::to_owned)
    }

    /// Returns the uploads of a workspace, the oldest first.
    pub fn uploads(&self, workspace: &str) -> Vec<Bytes> {
        let state = self.state();
        let Some((id, _)) = state.workspace_named(workspace) else { return Vec::new() };
        let versions = state.versions.values().filter(|version| version.workspace == *id);
        versions.filter_map(|version| version.content.clone()).collect()
    }

    /// Returns the runs of a workspace, the oldest first, with those that only plan.
    pub fn runs(&self, workspace: &str) -> Vec<RunView> {
        let state = self.state();
        let Some((id, _)) = state.workspace_named(workspace) else { return Vec::new() };
        let runs = state.runs.iter().filter(|(_, run)| run.workspace == *id);
        runs.map(|(id, run)| run.view(id)).collect()
    }

    /// Waits until the newest run of a workspace has this status, and returns it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_for_run(&self, workspace: &str, status: &str) -> RunView {
        // Subscribed before the look, so that no change in between is missed.
        let mut changed = self.shared.changed.subscribe();
        loop {
            if let Some(run) = self.runs(workspace).pop().filter(|run| run.status == status) {
                return run;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until `look` returns `true`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_until(&self, look: impl Fn(&Self) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        while !look(self) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Confirms a run as a person would; returns `true` if it waited for that.
    pub fn confirm(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.is_confirmable() => {
                run.set_status("confirmed");
                true
            }
            _ => false,
        })
    }

    /// Discards a run as a person would; returns `true` if it could be.
    pub fn discard(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.is_discardable() => {
                run.set_status("discarded");
                true
            }
            _ => false,
        })
    }

    /// Cancels a run as a person would; returns `true` if it could be.
    pub fn cancel(&self, run: &str) -> bool {
        self.change(|state| run_routes::cancel(state, run, self.shared.force_cancel_after))
    }

    /// Overrides the policy that holds a run up, as a person would; returns `true` if one did.
    pub fn override_policy(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.status == "policy_override" => {
                run.sentinel = Some("overridden");
                run.set_status("policy_checked");
                true
            }
            Some(run) if run.status == "post_plan_awaiting_decision" => {
                run.findings.opa = Some(PolicyResult::Overridden);
                run.set_status("post_plan_completed");
                true
            }
            _ => false,
        })
    }

    fn with_workspace(&self, name: &str, change: impl FnOnce(&mut Workspace)) {
        self.change(|state| {
            let found = state.workspaces.values_mut().find(|workspace| workspace.name == name);
            if let Some(found) = found {
                change(found);
            }
        });
    }
}

#[async_trait]
impl Platform for TestTfc {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        // As a network would, it lets others go on in between.
        tokio::task::yield_now().await;
        Ok(self.handle(&request))
    }
}
