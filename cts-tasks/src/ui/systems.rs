//! The page of Consul and the driver's tool: versions, and how fast they answer.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use consul_watch::{Client, error_chain};
use tokio::time::{Instant, timeout};

use super::{
    page::{Frame, Viewer, render},
    show::{coarse, fine},
    state::UiState,
};
use crate::{Finding, Verdict};

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Template)]
#[template(path = "ui/systems.html")]
struct SystemsPage {
    frame: Frame,
    consul: Consul,
    health: Option<String>,
    driver: Vec<Row>,
    driver_took: String,
    driver_age: String,
}

struct Row {
    check: String,
    label: &'static str,
    class: &'static str,
    detail: String,
}

#[derive(Default)]
struct Consul {
    version: Option<String>,
    datacenter: Option<String>,
    node: Option<String>,
    leader: Option<String>,
    latency: Option<String>,
    problem: Option<String>,
}

/// `GET /ui/systems`
pub(super) async fn page(State(state): State<UiState>, viewer: Viewer) -> Response {
    let engine = &state.engine;
    let (consul, check) = tokio::join!(ask(engine.watcher().client()), state.checked.get(engine));
    let page = SystemsPage {
        frame: Frame::new(&state, &viewer, "Consul and driver", "/ui/systems"),
        consul,
        health: engine.health().err(),
        driver: check.findings.iter().map(Row::of).collect(),
        driver_took: fine(check.took),
        driver_age: coarse(check.at.elapsed()),
    };
    render(StatusCode::OK, &page)
}

async fn ask(client: &Client) -> Consul {
    let mut consul = Consul::default();
    let begun = Instant::now();
    match timeout(PATIENCE, client.status_leader()).await {
        Ok(Ok(leader)) => {
            consul.latency = Some(fine(begun.elapsed()));
            consul.problem = leader.is_none().then(|| "Consul has no leader".to_owned());
            consul.leader = leader;
        }
        Ok(Err(error)) => consul.problem = Some(error_chain(&error)),
        Err(_late) => consul.problem = Some("Consul did not answer within 5 s".to_owned()),
    }
    if consul.latency.is_some() {
        match timeout(PATIENCE, client.agent_self()).await {
            Ok(Ok(agent)) => {
                consul.version = Some(agent.config.version);
                consul.datacenter = Some(agent.config.datacenter);
                consul.node = Some(agent.config.node_name);
            }
            Ok(Err(error)) => {
                let error = error_chain(&error);
                consul.problem = Some(format!("its version cannot be read (agent:read): {error}"));
            }
            Err(_late) => consul.problem = Some("its agent did not answer within 5 s".to_owned()),
        }
    }
    consul
}

impl Row {
    fn of(finding: &Finding) -> Self {
        let (label, class) = match finding.result {
            Verdict::Ok => ("Ok", "successful"),
            Verdict::Unchecked => ("Unchecked", "unknown"),
            Verdict::Warning => ("Warning", "waiting"),
            Verdict::Missing => ("Missing", "critical"),
        };
        Self { check: finding.check.clone(), label, class, detail: finding.detail.clone() }
    }
}
