//! The HTTP API, version 1: health, status, and tasks.
//!
//! Source: Consul-Terraform-Sync 0.9, `api`.

mod answer;
mod create;
mod form;
mod patch;
mod request;
mod schema;
mod status;
mod tasks;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use answer::Failure;

use crate::{Cluster, Engine, Error, Result, Role, Stop, config::TaskRules};

/// How long requests under way may take once the server is told to stop.
///
/// Source: Consul-Terraform-Sync 0.9, shutdown of the API.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves the HTTP API of one engine.
#[derive(Debug)]
pub struct ApiServer {
    listener: TcpListener,
    state: ApiState,
}

#[derive(Debug, Clone)]
pub(crate) struct ApiState {
    engine: Engine,
    cluster: Arc<dyn Cluster>,
    rules: Option<TaskRules>,
}

impl ApiServer {
    /// Takes the port; nothing is answered before [`ApiServer::serve`].
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when the address cannot be had, with the address in it.
    pub async fn bind(
        address: SocketAddr,
        engine: Engine,
        cluster: Arc<dyn Cluster>,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Other {
            operation: "serving the API",
            retryable: false,
            source: format!("cannot listen on {address} (the setting `port`): {source}").into(),
        })?;
        Ok(Self { listener, state: ApiState { engine, cluster, rules: None } })
    }

    /// Lets tasks be created that pass `rules`; without rules there is no such request.
    #[must_use]
    pub fn accept_tasks(mut self, rules: TaskRules) -> Self {
        self.state.rules = Some(rules);
        self
    }

    /// Where it listens: the port that was given out for port 0.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|source| Error::Other {
            operation: "serving the API",
            retryable: false,
            source: source.into(),
        })
    }

    /// Answers until the stop, and then for up to 5 seconds what is under way.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] when the socket fails.
    pub async fn serve(self, stop: Stop) -> Result<()> {
        let asked = stop.clone();
        let serving = axum::serve(self.listener, router(self.state))
            .with_graceful_shutdown(async move {
                asked.stopped().await;
            })
            .into_future();
        let drained = async {
            stop.stopped().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serving => served.map_err(|source| Error::Other {
                operation: "serving the API",
                retryable: false,
                source: source.into(),
            }),
            () = drained => Ok(()),
        }
    }
}

fn router(state: ApiState) -> Router {
    let for_leader = Router::new()
        .route("/v1/status", get(status::overall).fallback(status::overall_method))
        .route("/v1/status/tasks", get(status::tasks).fallback(status::tasks_method))
        .route("/v1/status/tasks/", get(status::tasks).fallback(status::tasks_method))
        .route("/v1/status/tasks/{*name}", get(status::task).fallback(status::tasks_method))
        .route("/v1/tasks", get(tasks::all).post(create::create).fallback(tasks::all_method))
        .route("/v1/tasks/", get(tasks::all).fallback(tasks::unnamed))
        .route(
            "/v1/tasks/{*name}",
            get(tasks::one).patch(patch::update).delete(tasks::delete).fallback(tasks::one_method),
        )
        .layer(middleware::from_fn_with_state(state.clone(), only_leader));
    Router::new()
        .route("/v1/health", get(status::health))
        .route("/v1/status/cluster", get(status::cluster).fallback(status::cluster_method))
        .merge(for_leader)
        .fallback(|| async { Failure::new(StatusCode::NOT_FOUND, "no such endpoint") })
        .layer(middleware::from_fn(every_answer))
        .with_state(state)
}

/// Headers that every answer carries; `OPTIONS` is always fine.
async fn every_answer(request: Request, next: Next) -> Response {
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::OK.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, PUT, PATCH, POST, DELETE"),
        (header::CONTENT_TYPE, "application/json"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends who asks a follower to the leader.
async fn only_leader(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match state.cluster.role() {
        Role::Leader => next.run(request).await,
        Role::Follower { leader, address } => {
            let mut message = "redirect requests to leader".to_owned();
            if let Some(leader) = leader {
                message = format!("{message} '{leader}'");
                if let Some(address) = address {
                    message = format!("{message} at {address}");
                }
            }
            Failure::new(StatusCode::BAD_REQUEST, message).into_response()
        }
    }
}
