//! What the HTTP API takes and sends, as the server writes it and the client reads it.
//!
//! `openapi.json` in this crate describes the same, and tests hold both together.
//!
//! Source: Consul-Terraform-Sync 0.9, `api/openapi.yaml`.

mod answer;
mod inputs;
mod plan;
mod status;
mod task;

pub use answer::{
    CreatedTask, ErrorDocument, ErrorMessage, InspectedTask, InspectedUpdate, TaskList,
    TaskMessage, TaskUpdate, UpdatedTask,
};
pub use inputs::{
    Difference, InputsDocument, InputsMessage, InstanceDocument, KeyDocument, SinceApplied,
};
pub use plan::{PlanDocument, PlanMessage, RanTask};
pub use status::{
    ClusterStatus, EnabledCounts, OverallStatus, StatusCounts, TaskStatus, TaskSummary,
    WorkDocument,
};
pub use task::{
    BufferPeriodDocument, CatalogServicesDocument, ConditionDocument, ConsulKvDocument,
    ModuleInputDocument, ServicesDocument, TaskDocument, UsedAsInput,
};
