//! Runs by hand, and plans that wait for approval.
//!
//! A state of the task that is in the way of a request is reported as 409; the
//! older routes keep upstream's 500.

use axum::{
    extract::{Path, State},
    http::StatusCode,
};

use super::{
    ApiState,
    answer::{Answer, Failure},
    tasks::{Empty, task_name},
};
use crate::{
    Error, PlanId,
    wire::{PlanDocument, PlanMessage, RanTask},
};

/// `POST /v1/tasks/<name>/run`
pub(crate) async fn run(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Answer<RanTask>, Failure> {
    let name = task_name(name)?;
    state.engine.run_now(&name).await.map_err(in_the_way)?;
    let waiting = state.engine.waiting_plan(&name)?;
    Ok(Answer::new(RanTask { waiting_plan: waiting.map(|plan| plan.id) }))
}

/// `GET /v1/tasks/<name>/plan`
pub(crate) async fn waiting(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Answer<PlanMessage>, Failure> {
    let name = task_name(name)?;
    let plan = state.engine.waiting_plan(&name)?.and_then(PlanDocument::of);
    let plan = plan.ok_or_else(|| {
        let text = format!("task '{name}' has no plan that waits for approval");
        Failure::new(StatusCode::NOT_FOUND, text)
    })?;
    Ok(Answer::new(PlanMessage { plan }))
}

/// `POST /v1/tasks/<name>/plan/<id>/approve`
pub(crate) async fn approve(
    State(state): State<ApiState>,
    Path((name, plan)): Path<(String, String)>,
) -> Result<Answer<Empty>, Failure> {
    let approved = state.engine.approve(&task_name(name)?, &PlanId::new(plan)).await;
    approved.map_err(in_the_way)?;
    Ok(Answer::new(Empty {}))
}

/// `DELETE /v1/tasks/<name>/plan/<id>`
pub(crate) async fn discard(
    State(state): State<ApiState>,
    Path((name, plan)): Path<(String, String)>,
) -> Result<Answer<Empty>, Failure> {
    let discarded = state.engine.discard_plan(&task_name(name)?, &PlanId::new(plan)).await;
    discarded.map_err(in_the_way)?;
    Ok(Answer::new(Empty {}))
}

fn in_the_way(error: Error) -> Failure {
    let status = match error {
        Error::TaskActive { .. } | Error::TaskDisabled { .. } | Error::PlanSuperseded { .. } => {
            StatusCode::CONFLICT
        }
        Error::NoSuchPlan { .. } => StatusCode::NOT_FOUND,
        error => return error.into(),
    };
    Failure::from(error).with_status(status)
}
