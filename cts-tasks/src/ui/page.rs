//! What all pages have in common: their frame, who looks, and pages that say what is wrong.

use std::convert::Infallible;

use askama::Template;
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::state::UiState;
use crate::{Error, Role};
use consul_watch::error_chain;

/// The viewer of a page.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    /// The token that a form of theirs carries.
    pub(super) form: SecretString,
    /// `true` if they have logged in, and can log out.
    pub(super) session: bool,
}

impl Viewer {
    /// Returns the viewer who may see the login only. No form has an empty token.
    pub(super) fn nobody() -> Self {
        Self { form: super::sessions::unguessable(), session: false }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Viewer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(Self::nobody))
    }
}

/// The frame around a page.
pub(super) struct Frame {
    pub(super) title: String,
    /// Path of the page in the menu.
    pub(super) active: &'static str,
    /// Whoever else answers for tasks.
    pub(super) leader: Option<LeaderLink>,
    /// The token of the viewer's forms.
    pub(super) form: String,
    pub(super) session: bool,
    /// Query of the event stream; `None` for a page that is not about tasks.
    pub(super) events: Option<String>,
    /// Seconds after which the page is fetched again in any case.
    pub(super) every: u64,
}

/// The leader, as a follower's pages show it.
pub(super) struct LeaderLink {
    pub(super) id: Option<String>,
    pub(super) address: Option<String>,
    pub(super) url: Option<String>,
}

impl Frame {
    pub(super) fn new(
        state: &UiState,
        viewer: &Viewer,
        title: impl Into<String>,
        active: &'static str,
    ) -> Self {
        Self {
            title: title.into(),
            active,
            leader: leader(state),
            form: viewer.form.expose_secret().to_owned(),
            session: viewer.session,
            events: None,
            every: 5,
        }
    }

    /// Lets the page be fetched again when something happens to a task, or to any.
    pub(super) fn following(mut self, task: Option<&str>) -> Self {
        self.events = Some(task.map(|task| format!("?task={task}")).unwrap_or_default());
        self
    }

    /// Returns `true` if this instance runs the tasks.
    pub(super) fn leads(&self) -> bool {
        self.leader.is_none()
    }
}

fn leader(state: &UiState) -> Option<LeaderLink> {
    let Role::Follower { leader, address } = state.cluster.role() else { return None };
    let scheme = if state.https { "https" } else { "http" };
    // Without its port a browser would ask whatever serves the scheme's own.
    let known = address.as_deref().filter(|address| {
        address.parse::<http::uri::Authority>().is_ok_and(|it| it.port_u16().is_some())
    });
    let url = known.map(|address| format!("{scheme}://{address}/ui/"));
    Some(LeaderLink { id: leader, address, url })
}

const HTML: &str = "text/html; charset=utf-8";

/// Answers with a page.
pub(super) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, [(header::CONTENT_TYPE, HTML)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A request that is refused, as a page says it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    text: String,
}

#[derive(Template)]
#[template(path = "ui/problem.html")]
struct ProblemPage<'a> {
    status: u16,
    reason: &'a str,
    text: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn forbidden(text: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn show(self) -> Response {
        let page = ProblemPage {
            status: self.status.as_u16(),
            reason: self.status.canonical_reason().unwrap_or_default(),
            text: &self.text,
        };
        render(self.status, &page)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::NoSuchTask { .. } | Error::NoSuchPlan { .. } => StatusCode::NOT_FOUND,
            Error::TaskActive { .. }
            | Error::TaskDisabled { .. }
            | Error::PlanSuperseded { .. }
            | Error::NotRunning => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error_chain(&error))
    }
}
