//! The page of the cluster: who is there, and who leads.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use tokio::time::timeout;

use super::{
    page::{Frame, Viewer, render},
    show::Moment,
    state::UiState,
};
use crate::{Member, Role};
use consul_watch::error_chain;

/// Longest time for Consul to say who the members are.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Template)]
#[template(path = "ui/cluster.html")]
struct ClusterPage {
    frame: Frame,
    /// `None` for a single instance.
    name: Option<String>,
    role: &'static str,
    term: Option<u64>,
    since: Option<Moment>,
    members: Vec<Member>,
    problem: Option<String>,
}

/// `GET /ui/cluster`
pub(super) async fn page(State(state): State<UiState>, viewer: Viewer) -> Response {
    let mut page = ClusterPage {
        frame: Frame::new(&state, &viewer, "Cluster", "/ui/cluster"),
        name: state.cluster.name(),
        role: match state.cluster.role() {
            Role::Leader => "leads",
            Role::Follower { .. } => "follows",
        },
        term: None,
        since: None,
        members: Vec::new(),
        problem: None,
    };
    if page.name.is_some() {
        let asked = async { tokio::join!(state.cluster.members(), state.cluster.election()) };
        match timeout(PATIENCE, asked).await {
            Ok((members, election)) => {
                match members {
                    Ok(members) => page.members = members,
                    Err(error) => page.problem = Some(error_chain(&error)),
                }
                match election {
                    Ok(None) => {}
                    Ok(Some(election)) => {
                        page.term = Some(election.term);
                        let now = state.engine.now();
                        page.since = election.since.map(|since| Moment::of(since.into(), now));
                    }
                    Err(error) => page.problem = Some(error_chain(&error)),
                }
            }
            Err(_late) => page.problem = Some("Consul did not answer within 5 s".to_owned()),
        }
    }
    render(StatusCode::OK, &page)
}
