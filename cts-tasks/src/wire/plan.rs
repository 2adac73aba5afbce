//! Answers about plans and runs.

use chrono::{DateTime, Local};
use serde::{Deserialize, Serialize};

use crate::{Changes, PlanId, PlannedResources};

/// `GET /v1/tasks/{name}/plan`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMessage {
    /// The plan.
    pub plan: PlanDocument,
}

/// A plan that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDocument {
    /// Names it to whoever approves or discards it.
    pub id: PlanId,
    /// Changes that the plan would make.
    pub changes: Changes,
    /// Resources that would change, with sensitive values masked; left out where the driver
    /// has no such list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<PlannedResources>,
    /// For people; a long one is cut.
    pub text: String,
    /// URL of the plan, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Why it waits.
    pub objection: String,
    /// Since when it waits.
    #[serde(serialize_with = "crate::time::rfc3339")]
    pub since: DateTime<Local>,
}

#[cfg(feature = "api")]
impl PlanDocument {
    /// The plan as it is shown; `None` if it does not wait for approval.
    pub(crate) fn of(plan: crate::Plan) -> Option<Self> {
        let waiting = plan.waiting?;
        Some(Self {
            id: plan.id,
            changes: plan.changes,
            resources: plan.resources,
            text: plan.text,
            url: plan.url,
            objection: waiting.objection.to_string(),
            since: waiting.since,
        })
    }
}

/// The answer to `POST /v1/tasks/{name}/run`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanTask {
    /// The plan that now waits for approval, if the guard objected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_plan: Option<PlanId>,
}
