//! The data of the double.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{clock, faults::ActiveFault, run_events::RunEvent, state_versions::StateVersion};

/// Id of the project that every organization has.
pub(super) const DEFAULT_PROJECT: &str = "prj-0000000000000000";

/// Data of the double.
#[derive(Debug)]
pub(super) struct State {
    counter: u64,
    /// Moment at which the double was started.
    pub(super) created_at: String,
    pub(super) workspaces: BTreeMap<String, Workspace>,
    pub(super) versions: BTreeMap<String, Version>,
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) stored: BTreeMap<String, StateVersion>,
    /// Ids of projects with their names, besides the default one.
    pub(super) projects: BTreeMap<String, String>,
    /// Names of agent pools with their ids.
    pub(super) pools: BTreeMap<String, String>,
    pub(super) requests: Vec<Recorded>,
    pub(super) faults: Vec<ActiveFault>,
    pub(super) holds: BTreeSet<Hold>,
    /// Moments at which run lists were answered, for their own limit.
    pub(super) run_lists: VecDeque<Instant>,
    /// Moments at which requests were answered, if there is a limit.
    pub(super) answered: VecDeque<Instant>,
    /// Treatment of the variables of runs, which old releases do not know.
    pub(super) run_variables: RunVariables,
    /// Token that it takes, if that was replaced.
    pub(super) token: Option<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            counter: 0,
            created_at: clock::now(),
            workspaces: BTreeMap::new(),
            versions: BTreeMap::new(),
            runs: BTreeMap::new(),
            stored: BTreeMap::new(),
            projects: BTreeMap::new(),
            pools: BTreeMap::new(),
            requests: Vec::new(),
            faults: Vec::new(),
            holds: BTreeSet::new(),
            run_lists: VecDeque::new(),
            answered: VecDeque::new(),
            run_variables: RunVariables::default(),
            token: None,
        }
    }
}

/// Request that came in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Recorded {
    /// Method, such as `GET`.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query, without the question mark.
    pub query: String,
    /// Status of the answer.
    pub status: u16,
    /// `true` if it had a token.
    pub authorized: bool,
    /// Moment at which it came in.
    pub at: Instant,
}

/// Point at which runs can be held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Runs stop while they are being planned.
    Planning,
    /// Runs stop while they are being applied.
    Applying,
    /// Runs that are cancelled go on, as if Terraform did not heed the interrupt.
    Cancels,
    /// The end of a step's log is not given out yet, as if the host of logs lagged behind.
    LogEnds,
}

/// Result of a run that a test gives, where runs are made up.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// Log of the plan.
    pub plan_log: String,
    /// Plan in the form of `terraform show -json`; its `resource_changes` are counted.
    pub plan: Value,
    /// Log of the apply.
    pub apply_log: String,
    /// State after the apply, as Terraform's own file; null leaves the one before.
    pub state: Value,
}

/// Treatment of the variables of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RunVariables {
    #[default]
    Taken,
    Ignored,
    Refused,
}

/// Result of the policies for a workspace's runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyResult {
    /// There are no policies, or they pass.
    #[default]
    Passed,
    /// A policy failed that a person may override.
    SoftFailed,
    /// A policy failed.
    HardFailed,
    /// A policy failed, and a person has overridden it.
    Overridden,
}

/// Findings of the platform about a workspace's runs besides their plans.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// Monthly costs after an apply, and their change.
    pub(super) costs: Option<(String, String)>,
    /// Result of policies of OPA.
    pub(super) opa: Option<PolicyResult>,
    /// Name, status and message of a run task.
    pub(super) run_task: Option<(String, String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) name: String,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    /// Id of its project, unless it is the default one.
    pub(super) project: Option<String>,
    pub(super) attributes: Map<String, Value>,
    pub(super) tags: Vec<String>,
    pub(super) bindings: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, Map<String, Value>>,
    pub(super) current_version: Option<String>,
    pub(super) current_run: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) policy: PolicyResult,
    pub(super) findings: Findings,
    /// Results of its next runs.
    pub(super) results: VecDeque<RunResult>,
    pub(super) fail_plan: VecDeque<String>,
    pub(super) fail_apply: VecDeque<String>,
    /// Resources that were applied last, where runs are made up.
    pub(super) applied: BTreeMap<String, String>,
    pub(super) resources: u64,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the platform's own attributes")]
pub(super) struct Version {
    pub(super) workspace: String,
    pub(super) content: Option<Bytes>,
    pub(super) speculative: bool,
    pub(super) provisional: bool,
    pub(super) auto_queue_runs: bool,
    pub(super) archived: bool,
    pub(super) created_at: String,
    pub(super) uploaded_at: Option<String>,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the platform's own attributes")]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) workspace: String,
    pub(super) version: String,
    pub(super) status: String,
    pub(super) message: String,
    pub(super) auto_apply: bool,
    pub(super) plan_only: bool,
    pub(super) save_plan: bool,
    pub(super) refresh: bool,
    pub(super) refresh_only: bool,
    pub(super) terraform_version: Option<String>,
    pub(super) is_destroy: bool,
    /// Values that it was given itself.
    pub(super) variables: Vec<(String, String)>,
    /// Workspace's variables at its creation: key, value, hcl, env.
    pub(super) snapshot: Vec<VariableSnapshot>,
    pub(super) target_addrs: Vec<String>,
    pub(super) replace_addrs: Vec<String>,
    pub(super) allow_empty_apply: bool,
    pub(super) created_at: String,
    /// Moments at which it entered its statuses, by name.
    pub(super) timestamps: BTreeMap<String, String>,
    pub(super) events: Vec<RunEvent>,
    /// Ids and texts of comments.
    pub(super) comments: Vec<(String, String)>,
    /// Result that a test gives it.
    pub(super) result: Option<RunResult>,
    pub(super) cancel_asked: bool,
    /// Moment from which it may be ended by force, as time of the runtime and of the day.
    pub(super) force_cancel: Option<(Instant, String)>,
    pub(super) plan: StepState,
    pub(super) apply: StepState,
    /// Findings after its plan.
    pub(super) findings: Findings,
    /// Result of policies of Sentinel after its plan.
    pub(super) sentinel: Option<&'static str>,
    pub(super) has_changes: bool,
    pub(super) json: Option<Value>,
    /// Plan without secrets, in the form that Terraform's own commands show.
    pub(super) redacted: Option<Value>,
}

#[derive(Debug, Clone)]
pub(super) struct VariableSnapshot {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) hcl: bool,
    pub(super) env: bool,
}

#[derive(Debug, Default, Clone)]
pub(super) struct StepState {
    pub(super) status: &'static str,
    /// Moments of its beginning and end.
    pub(super) timestamps: BTreeMap<&'static str, String>,
    /// Log with its marks.
    pub(super) log: Vec<u8>,
    /// Length of the log when the step ended.
    pub(super) before_end: Option<usize>,
    pub(super) counts: Option<[u64; 3]>,
}

impl StepState {
    /// Adds to the log, which begins with STX.
    pub(super) fn write(&mut self, text: &str) {
        if self.log.is_empty() {
            self.log.push(0x02);
        }
        self.log.extend_from_slice(text.as_bytes());
    }

    /// Begins the step.
    pub(super) fn begin(&mut self) {
        self.status = "running";
        self.timestamps.insert("started-at", clock::now());
    }

    /// Ends the step, and its log with ETX.
    pub(super) fn end(&mut self, status: &'static str, text: &str) {
        self.status = status;
        let name = match status {
            "finished" => "finished-at",
            "canceled" => "canceled-at",
            _ => "errored-at",
        };
        self.timestamps.insert(name, clock::now());
        self.before_end = Some(self.log.len());
        self.write(text);
        self.log.push(0x03);
    }

    /// Returns the part of the log that is given out.
    pub(super) fn readable(&self, lags: bool) -> &[u8] {
        let most = self.before_end.filter(|_| lags).unwrap_or(self.log.len());
        self.log.get(..most).unwrap_or_default()
    }
}

/// Run as a test sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunView {
    /// Id of the run.
    pub id: String,
    /// Status of the run.
    pub status: String,
    /// Message of the run.
    pub message: String,
    /// `true` if it is only planned.
    pub plan_only: bool,
    /// `true` if it is applied by itself.
    pub auto_apply: bool,
    /// Id of the upload that it runs.
    pub configuration_version: String,
}

const FINAL: [&str; 7] = [
    "applied",
    "planned_and_finished",
    "policy_soft_failed",
    "discarded",
    "canceled",
    "force_canceled",
    "errored",
];

impl Run {
    pub(super) fn is_final(&self) -> bool {
        FINAL.contains(&self.status.as_str())
    }

    pub(super) fn is_confirmable(&self) -> bool {
        matches!(self.status.as_str(), "planned" | "planned_and_saved") && !self.plan_only
    }

    /// Returns `true` if it may be ended by force, because it did not heed a cancellation in time.
    pub(super) fn is_force_cancelable(&self) -> bool {
        let over = self.force_cancel.as_ref().is_some_and(|(at, _)| Instant::now() >= *at);
        over && !self.is_final()
    }

    /// Returns `true` if it keeps others of its workspace waiting.
    pub(super) fn occupies(&self) -> bool {
        // A saved plan waits without the workspace's lock.
        !self.plan_only && !self.is_final() && self.status != "planned_and_saved"
    }

    pub(super) fn is_discardable(&self) -> bool {
        matches!(
            self.status.as_str(),
            "pending"
                | "planned"
                | "planned_and_saved"
                | "policy_override"
                | "post_plan_awaiting_decision"
        )
    }

    pub(super) fn is_cancelable(&self) -> bool {
        matches!(self.status.as_str(), "plan_queued" | "planning" | "apply_queued" | "applying")
    }

    pub(super) fn view(&self, id: &str) -> RunView {
        RunView {
            id: id.to_owned(),
            status: self.status.clone(),
            message: self.message.clone(),
            plan_only: self.plan_only,
            auto_apply: self.auto_apply,
            configuration_version: self.version.clone(),
        }
    }
}

impl Workspace {
    /// Returns `true` if a person or Terraform has locked it.
    pub(super) fn is_locked(&self) -> bool {
        self.attributes.get("locked").and_then(Value::as_bool) == Some(true)
    }

    /// Returns `true` if it has this tag, or a key-value tag of this key.
    pub(super) fn has_tag(&self, tag: &String) -> bool {
        self.tags.contains(tag) || self.bindings.contains_key(tag)
    }
}

impl State {
    pub(super) fn id(&mut self, prefix: &str) -> String {
        self.counter += 1;
        format!("{prefix}-{:016}", self.counter)
    }

    /// Returns `true` if cancelled runs end, which a test can keep them from.
    pub(super) fn heeds_cancels(&self) -> bool {
        !self.holds.contains(&Hold::Cancels)
    }

    pub(super) fn number(&self) -> u64 {
        self.counter
    }

    pub(super) fn workspace_named(&self, name: &str) -> Option<(&String, &Workspace)> {
        self.workspaces.iter().find(|(_, workspace)| workspace.name == name)
    }

    /// Returns `true` if no lock and no earlier run of its workspace holds this run up.
    pub(super) fn may_start(&self, id: &str) -> bool {
        let Some(run) = self.runs.get(id) else { return false };
        // Plan-only runs need no lock and wait for nobody.
        if run.plan_only {
            return true;
        }
        let locked = self.workspaces.get(&run.workspace).is_none_or(Workspace::is_locked);
        let behind = self.runs.values().any(|other| {
            other.workspace == run.workspace && other.occupies() && other.number < run.number
        });
        !locked && !behind
    }
}
