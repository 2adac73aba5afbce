//! Buttons of the page of a task.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use super::{
    form::Form,
    page::{Problem, Viewer},
    state::UiState,
};
use crate::{FirstRun, PlanId, Result, Role, TaskName};

/// Time for which a button waits for its outcome. What takes longer goes on, and shows on the
/// page.
const PATIENCE: Duration = Duration::from_secs(1);

/// `POST /ui/tasks/{name}/{action}`
pub(super) async fn act(
    State(state): State<UiState>,
    Path((name, action)): Path<(String, String)>,
    viewer: Viewer,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match acted(state, name, &action, &viewer, &headers, body).await {
        Ok(back) => back.into_response(),
        Err(problem) => problem.show(),
    }
}

async fn acted(
    state: UiState,
    name: String,
    action: &str,
    viewer: &Viewer,
    headers: &HeaderMap,
    body: Body,
) -> std::result::Result<Redirect, Problem> {
    let form = Form::read(headers, body).await?;
    form.check(viewer)?;
    if let Role::Follower { .. } = state.cluster.role() {
        let text = "this instance follows: the leader's page has the buttons";
        return Err(Problem::new(StatusCode::CONFLICT, text));
    }
    let action = Action::of(action, form.get("plan").expose_secret())
        .ok_or_else(|| Problem::not_found("there is no such action"))?;
    let name =
        TaskName::try_from(name).map_err(|_no_name| Problem::not_found("there is no such task"))?;
    let back = format!("/ui/tasks/{name}");
    tracing::info!(task.name = %name, action = action.name(), "asked for on the status page");
    // By a task of its own: a browser that goes away does not end it.
    let done = tokio::spawn(async move { action.carry_out(&state, &name).await });
    match timeout(PATIENCE, done).await {
        Ok(Ok(Err(error))) => Err(error.into()),
        Ok(Err(_panicked)) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the action failed by a defect of the server; its log says more",
        )),
        // After the patience it goes on.
        Ok(Ok(Ok(()))) | Err(_) => Ok(Redirect::to(&back)),
    }
}

/// The action of a button.
enum Action {
    Run,
    Enable,
    Disable,
    Approve(PlanId),
    Discard(PlanId),
}

impl Action {
    fn of(name: &str, plan: &str) -> Option<Self> {
        Some(match name {
            "run" => Self::Run,
            "enable" => Self::Enable,
            "disable" => Self::Disable,
            "approve" => Self::Approve(PlanId::new(plan)),
            "discard" => Self::Discard(PlanId::new(plan)),
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Approve(_) => "approve",
            Self::Discard(_) => "discard",
        }
    }

    async fn carry_out(self, state: &UiState, name: &TaskName) -> Result<()> {
        let engine = &state.engine;
        let action = self.name();
        let done = match self {
            Self::Run => engine.run_now(name).await,
            Self::Enable => engine.set_enabled(name, true, FirstRun::WhenTriggered).await,
            Self::Disable => engine.set_enabled(name, false, FirstRun::WhenTriggered).await,
            Self::Approve(plan) => engine.approve(name, &plan).await,
            Self::Discard(plan) => engine.discard_plan(name, &plan).await,
        };
        if let Err(error) = &done {
            let error = error as &dyn std::error::Error;
            tracing::warn!(task.name = %name, action, error, "an action of the status page failed");
        }
        done
    }
}
