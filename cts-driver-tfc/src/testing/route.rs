//! From a request to the part of the double that answers it, past faults, limits and the token.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    TestTfc,
    answer::{self, Answer},
    archive, check_routes,
    faults::Fault,
    organization_routes, query, run_events, run_routes,
    state::Recorded,
    state_versions, workspace_routes,
};

/// Mark of a request that came in over TLS.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverTls;

/// Request, split into its parts.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) query: &'a str,
    pub(super) body: Value,
    pub(super) raw: &'a Bytes,
    /// Scheme, host and port: `http://host:port`.
    pub(super) base: String,
}

impl TestTfc {
    /// Answers one request.
    pub(super) fn handle(&self, request: &Request<Bytes>) -> Answer {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let authorized = request.headers().contains_key(header::AUTHORIZATION);
        let mut answer = self.answer(request, &path, &query);
        let release = self.shared.release.as_deref();
        let product = if release.is_some() { "Terraform Enterprise" } else { "HCP Terraform" };
        let limit = self.shared.limit.map(|limit| limit.to_string());
        for (name, value) in [
            ("tfp-api-version", Some("2.6")),
            ("tfp-appname", Some(product)),
            ("x-tfe-version", release),
            ("x-ratelimit-limit", limit.as_deref()),
        ] {
            if let Some(value) = value.and_then(|value| header::HeaderValue::from_str(value).ok()) {
                answer.headers_mut().insert(name, value);
            }
        }
        self.change(|state| {
            state.requests.push(Recorded {
                method: request.method().to_string(),
                path,
                query,
                status: answer.status().as_u16(),
                authorized,
                at: Instant::now(),
            });
        });
        answer
    }

    fn answer(&self, request: &Request<Bytes>, path: &str, query: &str) -> Answer {
        // Faults first: the request of a test must fail whatever else holds.
        let fault = self.fault(request.method(), path);
        match fault {
            Some(Fault::Status(status)) => return answer::error(status, "fault", "injected"),
            Some(Fault::RateLimit(until)) => return answer::rate_limited(until.as_secs_f64()),
            Some(Fault::AnswerLost) | None => {}
        }
        if let Some(refused) = self.limited(request.method(), path) {
            return refused;
        }
        // A lost answer has its effect.
        let answer = self.routed(request, path, query);
        if fault.is_some() {
            answer::error(502, "Bad Gateway", "the answer is lost")
        } else {
            answer
        }
    }

    fn fault(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut state = self.state();
        let found = state.faults.iter_mut().find(|active| {
            active.left > 0
                && path.contains(&active.path)
                && active.method.as_ref().is_none_or(|wanted| wanted == method)
        })?;
        found.left -= 1;
        Some(found.fault.clone())
    }

    /// Refuses what is over a limit: all requests by the second, lists of runs by the minute.
    fn limited(&self, method: &Method, path: &str) -> Option<Answer> {
        let now = Instant::now();
        let mut state = self.state();
        // Uploads and logs are another host's, without this limit.
        if let Some(limit) = self.shared.limit.filter(|_| !path.starts_with("/_archivist")) {
            let second = std::time::Duration::from_secs(1);
            state.answered.retain(|at| now.duration_since(*at) < second);
            if state.answered.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
                let first = state.answered.front().copied().unwrap_or(now);
                return Some(answer::rate_limited((first + second - now).as_secs_f64()));
            }
            state.answered.push_back(now);
        }
        if method == Method::GET && path.ends_with("/runs") {
            let minute = std::time::Duration::from_mins(1);
            state.run_lists.retain(|at| now.duration_since(*at) < minute);
            if state.run_lists.len() >= 30 {
                let first = state.run_lists.front().copied().unwrap_or(now);
                return Some(answer::rate_limited((first + minute - now).as_secs_f64()));
            }
            state.run_lists.push_back(now);
        }
        None
    }

    fn routed(&self, request: &Request<Bytes>, path: &str, query: &str) -> Answer {
        let asked = Asked {
            method: request.method(),
            query,
            body: serde_json::from_slice(request.body()).unwrap_or_default(),
            raw: request.body(),
            base: base(request),
        };
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match segments.as_slice() {
            [".well-known", "terraform.json"] => return discovery(),
            ["_archivist", rest @ ..] => {
                // Uploads and logs have their secret in the address, and a token would leak there.
                // Downloads are redirects of one host here, which Terraform follows with its token.
                let tolerated = request.method() == Method::GET && rest.first() != Some(&"log");
                if request.headers().contains_key(header::AUTHORIZATION) && !tolerated {
                    return answer::error(400, "bad request", "a token was sent to the archive");
                }
                return archive::archive(self, &asked, rest);
            }
            ["api", "v2", rest @ ..] => rest,
            _ => return answer::not_found(),
        };
        // Before the token, which it does not need.
        if rest == ["ping"] {
            return answer::empty(204);
        }
        if let Some(refused) = refused(request.method(), request.headers(), &self.token()) {
            return refused;
        }
        self.routed_api(&asked, rest)
    }

    /// Answers a request of the API whose token holds.
    fn routed_api(&self, asked: &Asked<'_>, rest: &[&str]) -> Answer {
        let served = filters(rest);
        if let Some(unknown) = query::unknown_filter(asked.query, served) {
            return answer::unknown_filter(&unknown, served);
        }
        match rest {
            ["account", "details"] => organization_routes::account(),
            ["organizations", organization, ..] if *organization != Self::ORGANIZATION => {
                answer::not_found()
            }
            ["organizations", _, rest @ ..] => organization_routes::organization(self, asked, rest),
            ["agent-pools", id] => organization_routes::pool(self, asked, id),
            ["projects", id] => organization_routes::project(self, asked, id),
            ["workspaces", id, rest @ ..] => {
                if !self.state().workspaces.contains_key(*id) {
                    return answer::not_found();
                }
                workspace_routes::workspace(self, asked, id, rest)
            }
            ["state-versions", rest @ ..] => state_versions::by_id(self, asked, rest),
            ["state-version-outputs", id] => state_versions::output(&self.state(), id),
            ["run-events" | "comments", id] => {
                run_events::by_id(&self.state(), rest.first().copied().unwrap_or_default(), id)
            }
            ["runs", id, what @ ("run-events" | "comments")] => {
                run_events::of_run(self, asked, id, what)
            }
            ["policy-checks" | "task-stages", id, "actions", "override"] => {
                check_routes::overridden(self, id)
            }
            ["runs", id, "policy-checks" | "task-stages"]
            | ["cost-estimates" | "task-results" | "policy-checks" | "task-stages", id]
            | ["task-stages", id, "policy-evaluations"]
            | ["policy-checks" | "cost-estimates", id, "output"] => {
                check_routes::found(&self.state(), asked, rest, id)
            }
            ["configuration-versions" | "runs" | "plans" | "applies", ..] => {
                run_routes::run(self, asked, rest)
            }
            _ => answer::unserved(&format!("{} /api/v2/{}", asked.method, rest.join("/"))),
        }
    }
}

/// Returns the filters that a list has; `N` stands for any number.
fn filters(rest: &[&str]) -> &'static [&'static str] {
    match rest {
        ["organizations", _, "workspaces"] => &[
            "filter[project][id]",
            "filter[current-run][status]",
            "filter[tagged][N][key]",
            "filter[tagged][N][value]",
        ],
        ["organizations" | "workspaces", _, "runs"] => {
            &["filter[status_group]", "filter[status]", "filter[operation]"]
        }
        ["organizations", _, "projects"] => &["filter[names]"],
        ["state-versions"] => &["filter[workspace][name]", "filter[organization][name]"],
        ["workspaces", _, "run-triggers"] => &["filter[run-trigger][type]"],
        _ => &[],
    }
}

/// Answers Terraform's service discovery.
fn discovery() -> Answer {
    answer::plain_json(&json!({
        "state.v2": "/api/v2/", "tfe.v2": "/api/v2/", "tfe.v2.1": "/api/v2/",
        "tfe.v2.2": "/api/v2/",
    }))
}

/// Refuses what the platform would before it looks at the request.
fn refused(method: &Method, headers: &HeaderMap, token: &str) -> Option<Answer> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // 401 without a word, as the platform answers.
    if header("authorization") != Some(&format!("Bearer {token}")) {
        return Some(answer::error(401, "unauthorized", ""));
    }
    if method != Method::GET && header("content-type") != Some("application/vnd.api+json") {
        return Some(answer::error(415, "unsupported media type", "send JSON:API"));
    }
    None
}

fn base(request: &Request<Bytes>) -> String {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let scheme = if request.extensions().get::<OverTls>().is_some() { "https" } else { "http" };
    match (request.uri().authority(), host) {
        (Some(authority), _) => {
            format!("{}://{authority}", request.uri().scheme_str().unwrap_or("http"))
        }
        (None, Some(host)) => format!("{scheme}://{host}"),
        (None, None) => String::new(),
    }
}

/// Returns the id of the object that a relationship of the request names.
pub(super) fn related<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.pointer(&format!("/data/relationships/{name}/data/id"))?.as_str()
}
