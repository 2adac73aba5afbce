//! `GET /v1/status`: all tasks together, one by one, and the cluster.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, Query, State as Of},
    http::StatusCode,
};
use serde::Serialize;

use super::{
    ApiState,
    answer::{Answer, Failure, unsupported_path},
};
use crate::{
    Error, State, Status, Task, TaskName, UnderWay,
    wire::{ClusterStatus, OverallStatus, TaskStatus, TaskSummary, WorkDocument},
};

#[derive(Serialize)]
pub(crate) struct Empty {}

/// `GET /v1/health`
pub(crate) async fn health(Of(state): Of<ApiState>) -> Result<Json<Empty>, Failure> {
    match state.engine.health() {
        Ok(()) => Ok(Json(Empty {})),
        Err(reason) => Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("CTS is not healthy: {reason}"),
        )),
    }
}

/// `GET /v1/status`
pub(crate) async fn overall(Of(state): Of<ApiState>) -> Json<OverallStatus> {
    let mut summary = TaskSummary::default();
    state.engine.state(|state| {
        for task in &state.tasks {
            let events = state.events.get(&task.name).into_iter().flatten();
            let plan = state.plans.get(&task.name).map(|plan| &plan.id);
            *match Status::of(events, plan) {
                Status::Successful => &mut summary.status.successful,
                Status::Errored => &mut summary.status.errored,
                Status::Critical => &mut summary.status.critical,
                Status::Waiting => &mut summary.status.waiting,
                Status::Unknown => &mut summary.status.unknown,
            } += 1;
            *if task.enabled {
                &mut summary.enabled.enabled
            } else {
                &mut summary.enabled.disabled
            } += 1;
        }
    });
    Json(OverallStatus { task_summary: summary })
}

/// `GET /v1/status/cluster`
pub(crate) async fn cluster(Of(state): Of<ApiState>) -> Result<Answer<ClusterStatus>, Failure> {
    let Some(cluster_name) = state.cluster.name() else {
        return Err(Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this endpoint is only available with high availability configured",
        ));
    };
    let members = state.cluster.members().await?;
    Ok(Answer::new(ClusterStatus { cluster_name, members }))
}

type Statuses = BTreeMap<String, TaskStatus>;
type Parameters = Query<Vec<(String, String)>>;

/// `GET /v1/status/tasks`
pub(crate) async fn tasks(
    Of(state): Of<ApiState>,
    parameters: Parameters,
) -> Result<Json<Statuses>, Failure> {
    let wanted = Wanted::read(&parameters)?;
    let work = state.engine.under_way();
    Ok(Json(state.engine.state(|state| {
        let all = state.tasks.iter().map(|task| wanted.show(task, state, &work));
        all.filter(|shown| wanted.status.is_none_or(|status| status == shown.status))
            .map(|shown| (shown.task_name.clone(), shown))
            .collect()
    })))
}

/// `GET /v1/status/tasks/<name>`
pub(crate) async fn task(
    Of(state): Of<ApiState>,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Json<Statuses>, Failure> {
    if name.contains('/') {
        return Err(unsupported_path(&format!("/v1/status/tasks/{name}")));
    }
    let wanted = Wanted::read(&parameters)?;
    let work = state.engine.under_way();
    let shown = state.engine.state(|state| {
        let task = state.tasks.iter().find(|task| task.name.as_str() == name)?;
        let shown = wanted.show(task, state, &work);
        let without_events = shown.events_url.is_empty();
        Some((shown, without_events))
    });
    let Some((shown, without_events)) = shown else {
        return Err(Error::NoSuchTask { task: name }.into());
    };
    let matches = wanted.status.is_none_or(|status| status == shown.status);
    let statuses = (matches || without_events).then(|| (shown.task_name.clone(), shown));
    Ok(Json(statuses.into_iter().collect()))
}

/// The query parameters.
struct Wanted {
    events: bool,
    status: Option<Status>,
}

impl Wanted {
    fn read(Query(parameters): &Parameters) -> Result<Self, Failure> {
        let values = |name: &str| -> Vec<&str> {
            let named = parameters.iter().filter(|(key, _)| key == name);
            named.map(|(_, value)| value.as_str()).collect()
        };
        let events = match values("include").as_slice() {
            [] => false,
            ["events"] => true,
            [other] => {
                return Err(Failure::bad_request(format!(
                    "unsupported ?include parameter value. only supporting 'include=events' but got 'include={other}'"
                )));
            }
            several => {
                return Err(Failure::bad_request(format!(
                    "cannot support more than one include parameter, got include values: {several:?}"
                )));
            }
        };
        let status = match values("status").as_slice() {
            [] => None,
            [text] => Some(status_named(text).ok_or_else(|| {
                Failure::bad_request(format!(
                    "unsupported status parameter value. only supporting status values successful, \
                     errored, critical, and unknown but got {text}"
                ))
            })?),
            several => {
                return Err(Failure::bad_request(format!(
                    "cannot support more than one status query parameter, got status values: {several:?}"
                )));
            }
        };
        Ok(Self { events, status })
    }

    fn show(&self, task: &Task, state: &State, work: &BTreeMap<TaskName, UnderWay>) -> TaskStatus {
        let events = state.events.get(&task.name).map_or(&[][..], Vec::as_slice);
        let plan = state.plans.get(&task.name).map(|plan| &plan.id);
        TaskStatus {
            task_name: task.name.to_string(),
            status: Status::of(events, plan),
            enabled: task.enabled,
            events_url: if events.is_empty() {
                String::new()
            } else {
                format!("/v1/status/tasks/{}?include=events", task.name)
            },
            events: if self.events { events.to_vec() } else { Vec::new() },
            waiting_plan: plan.cloned(),
            under_way: work.get(&task.name).cloned().map(document),
            drift: state.drift.get(&task.name).cloned(),
            providers: task.providers.clone(),
            services: task.listed_services(),
        }
    }
}

fn document(UnderWay { since, step, progress }: UnderWay) -> WorkDocument {
    WorkDocument { since, step, progress }
}

fn status_named(text: &str) -> Option<Status> {
    [Status::Successful, Status::Errored, Status::Critical, Status::Waiting, Status::Unknown]
        .into_iter()
        .find(|status| status.as_str().eq_ignore_ascii_case(text))
}
