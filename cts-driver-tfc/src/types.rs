//! The platform's objects, as far as a driver reads or writes them.
//!
//! Source: HCP Terraform API documentation.

mod agent_pool;
mod checks;
mod configuration_version;
mod plan;
mod project;
mod run;
mod run_status;
mod server;
mod state_version;
mod tag;
mod trigger;
mod variable;
mod workspace;

pub use agent_pool::{AgentPool, AgentPoolAttributes, AgentPoolId};
pub use checks::{
    CostEstimate, CostEstimateAttributes, CostEstimateId, PolicyCheck, PolicyCheckAttributes,
    PolicyCheckCounts, PolicyEvaluation, PolicyEvaluationAttributes, PolicyEvaluationCounts,
    TaskResult, TaskResultAttributes, TaskResultId, TaskStage, TaskStageAttributes, TaskStageId,
};
pub use configuration_version::{
    ConfigurationStatus, ConfigurationVersion, ConfigurationVersionAttributes,
    ConfigurationVersionId, NewConfigurationVersion,
};
pub use plan::{Apply, ApplyAttributes, ApplyId, Plan, PlanAttributes, PlanId, StepStatus};
pub use project::{Project, ProjectAttributes, ProjectId};
pub use run::{
    NewRun, Run, RunActions, RunAttributes, RunFilter, RunId, RunPermissions, RunReport,
    RunVariable,
};
pub use run_status::{Phase, RunStatus};
pub use server::{Server, TfeRelease};
pub use state_version::{
    Output, OutputAttributes, StateVersion, StateVersionAttributes, StateVersionId,
};
pub use tag::{Tag, TagAttributes, TagBinding, TagBindingAttributes};
pub use trigger::{RunTrigger, RunTriggerAttributes, RunTriggerKind};
pub(crate) use variable::check_value;
pub use variable::{
    Category, NewVariable, Variable, VariableAttributes, VariableChange, VariableId,
};
pub use workspace::{
    ExecutionMode, NewWorkspace, OrganizationAttributes, Workspace, WorkspaceAttributes,
    WorkspaceChange, WorkspaceId, WorkspacePermissions,
};

pub use crate::{
    document::{Kind, Relationships, Resource},
    id::{Id, InvalidId},
};
