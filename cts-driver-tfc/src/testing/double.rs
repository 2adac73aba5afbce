use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    faults::{ActiveFault, Fault},
    serve::ServedTfc,
    state::{Hold, PolicyResult, Recorded, RunVariables, RunView, State, Workspace},
};
use crate::{Client, ClientOptions, ExchangeError, Platform};

/// An in-process Terraform Cloud with one organization, `my-org`, and one
/// token, `a-team-token`. Clones share everything.
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
}

/// Sets up a [`TestTfc`].
#[derive(Debug, Default)]
#[must_use]
pub struct TestTfcBuilder {
    tool: Option<PathBuf>,
    limit: Option<u32>,
    release: Option<String>,
}

impl TestTfcBuilder {
    /// Runs this `tofu` or `terraform` on what is uploaded.
    pub fn tool(mut self, path: impl Into<PathBuf>) -> Self {
        self.tool = Some(path.into());
        self
    }

    /// Turns requests away that are more than so many in a second.
    pub fn rate_limit(mut self, requests_per_second: u32) -> Self {
        self.limit = Some(requests_per_second);
        self
    }

    /// Answers as this release of Terraform Enterprise, such as `v202308-1`.
    pub fn release(mut self, release: impl Into<String>) -> Self {
        self.release = Some(release.into());
        self
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// When there is a tool and no folder can be made for its files.
    #[expect(clippy::expect_used, reason = "a test double tells a broken machine at once")]
    pub fn build(self) -> TestTfc {
        let folder = self.tool.is_some().then(|| tempfile::tempdir().expect("a folder for runs"));
        let shared = Shared {
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            tool: self.tool,
            folder,
            limit: self.limit,
            release: self.release,
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

    /// Tells everybody who waits that something is different.
    pub(super) fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl TestTfc {
    /// The organization.
    pub const ORGANIZATION: &'static str = "my-org";
    /// The token that it takes.
    pub const TOKEN: &'static str = "a-team-token";

    /// A platform that makes runs up, without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to set one up.
    pub fn builder() -> TestTfcBuilder {
        TestTfcBuilder::default()
    }

    /// A client in memory, with default options.
    pub fn client(&self) -> Client {
        let options = ClientOptions::default();
        Client::with_platform(Arc::new(self.clone()), options, Self::TOKEN.to_owned().into())
    }

    /// Serves it on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn serve(&self) -> std::io::Result<ServedTfc> {
        ServedTfc::start(self.clone(), 0).await
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

    /// All requests so far.
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

    /// Adds an agent pool.
    pub fn add_pool(&self, name: &str) -> String {
        self.change(|state| {
            let id = state.id("apool");
            state.pools.insert(name.to_owned(), id.clone());
            id
        })
    }

    /// Makes a workspace as a person would, with these attributes over the
    /// defaults and these tags.
    pub fn add_workspace(&self, name: &str, attributes: &Value, tags: &[&str]) -> String {
        self.change(|state| {
            let id = state.id("ws");
            let mut workspace = Workspace { name: name.to_owned(), ..Workspace::default() };
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

    /// Says what the policies find in the runs of a workspace.
    pub fn set_policy(&self, workspace: &str, policy: PolicyResult) {
        self.with_workspace(workspace, |found| found.policy = policy);
    }

    /// Makes the next plan of a workspace fail, where runs are made up.
    pub fn fail_plan(&self, workspace: &str, message: &str) {
        self.with_workspace(workspace, |found| found.fail_plan.push_back(message.to_owned()));
    }

    /// Makes the next apply of a workspace fail, where runs are made up.
    pub fn fail_apply(&self, workspace: &str, message: &str) {
        self.with_workspace(workspace, |found| found.fail_apply.push_back(message.to_owned()));
    }

    /// Deletes a workspace as a person would.
    pub fn delete_workspace(&self, name: &str) {
        self.change(|state| state.workspaces.retain(|_, workspace| workspace.name != name));
    }

    /// Ignores the variables of runs, as old releases do.
    pub fn ignore_run_variables(&self) {
        self.state().run_variables = RunVariables::Ignored;
    }

    /// Refuses runs that have variables, as a release may that does not know them.
    pub fn refuse_run_variables(&self) {
        self.state().run_variables = RunVariables::Refused;
    }

    /// An attribute of a workspace.
    pub fn attribute(&self, workspace: &str, name: &str) -> Option<Value> {
        let state = self.state();
        let (_, found) = state.workspace_named(workspace)?;
        found.attributes.get(name).cloned()
    }

    /// The tags of a workspace.
    pub fn tags(&self, workspace: &str) -> Vec<String> {
        let state = self.state();
        state.workspace_named(workspace).map(|(_, found)| found.tags.clone()).unwrap_or_default()
    }

    /// The value of a variable, also of a sensitive one.
    pub fn variable(&self, workspace: &str, key: &str) -> Option<String> {
        let state = self.state();
        let (_, found) = state.workspace_named(workspace)?;
        let mut variables = found.variables.values();
        let variable = variables.find(|variable| variable.get("key") == Some(&json!(key)))?;
        variable.get("value")?.as_str().map(str::to_owned)
    }

    /// The uploads of a workspace, the oldest first.
    pub fn uploads(&self, workspace: &str) -> Vec<Bytes> {
        let state = self.state();
        let Some((id, _)) = state.workspace_named(workspace) else { return Vec::new() };
        let versions = state.versions.values().filter(|version| version.workspace == *id);
        versions.filter_map(|version| version.content.clone()).collect()
    }

    /// The runs of a workspace, the oldest first, with those that only plan.
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

    /// Waits until what a test looks at is as it should be.
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

    /// Confirms a run as a person would; whether it waited for that.
    pub fn confirm(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.is_confirmable() => {
                "confirmed".clone_into(&mut run.status);
                true
            }
            _ => false,
        })
    }

    /// Discards a run as a person would; whether it could be.
    pub fn discard(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.is_discardable() => {
                "discarded".clone_into(&mut run.status);
                true
            }
            _ => false,
        })
    }

    /// Cancels a run as a person would; whether it could be.
    pub fn cancel(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.is_cancelable() => {
                run.cancel_asked = true;
                true
            }
            _ => false,
        })
    }

    /// Overrides the policy that holds a run up, as a person would.
    pub fn override_policy(&self, run: &str) -> bool {
        self.change(|state| match state.runs.get_mut(run) {
            Some(run) if run.status == "policy_override" => {
                "policy_checked".clone_into(&mut run.status);
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
