//! The routes of the API, and answers to methods and paths that it does not know.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, State},
    handler::Handler,
    http::{Method, Uri},
    routing::{MethodFilter, get, on},
};

use super::{
    ApiState, CLUSTER, HEALTH,
    answer::{Failure, unsupported_method, unsupported_path},
    create, document, events, inputs, metrics,
    pages::PageContext,
    patch, plans, status, tasks,
};

/// An endpoint of the API: method, path and handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Another spelling of a path that the document has.
    pub(crate) alias: bool,
}

/// A router, and what it routes.
pub(crate) struct Routes {
    router: Router<ApiState>,
    pub(crate) all: Vec<Route>,
}

impl Routes {
    /// Everything that a deployment with this state answers.
    pub(crate) fn of(state: &ApiState) -> Self {
        Self::new(state.rules.is_some(), state.exposition.is_some())
    }

    fn new(creates_tasks: bool, shows_metrics: bool) -> Self {
        let mut routes = Self { router: Router::new(), all: Vec::new() };
        routes.add("GET", HEALTH, status::health);
        routes.add("GET", CLUSTER, status::cluster);
        routes.add("GET", "/v1/openapi.json", document::document);
        routes.add("GET", "/v1/events", events::events);
        routes.add("GET", "/v1/status", status::overall);
        routes.alias("GET", "/v1/status/", status::overall);
        routes.add("GET", "/v1/status/tasks", status::tasks);
        routes.alias("GET", "/v1/status/tasks/", status::tasks);
        routes.add("GET", "/v1/status/tasks/{name}", status::task);
        routes.add("GET", "/v1/tasks", tasks::all);
        routes.alias("GET", "/v1/tasks/", tasks::all);
        if creates_tasks {
            routes.add("POST", "/v1/tasks", create::create);
        }
        routes.add("GET", "/v1/tasks/{name}", tasks::one);
        routes.add("PATCH", "/v1/tasks/{name}", patch::update);
        routes.add("DELETE", "/v1/tasks/{name}", tasks::delete);
        routes.add("POST", "/v1/tasks/{name}/run", plans::run);
        routes.add("GET", "/v1/tasks/{name}/inputs", inputs::inputs);
        routes.add("GET", "/v1/tasks/{name}/plan", plans::waiting);
        routes.add("DELETE", "/v1/tasks/{name}/plan/{id}", plans::discard);
        routes.add("POST", "/v1/tasks/{name}/plan/{id}/approve", plans::approve);
        if shows_metrics {
            routes.add("GET", "/metrics", metrics::metrics);
        }
        routes
    }

    fn add<H, T>(&mut self, method: &'static str, path: &'static str, handler: H)
    where
        H: Handler<T, ApiState>,
        T: 'static,
    {
        self.put(Route { method, path, alias: false }, handler);
    }

    fn alias<H, T>(&mut self, method: &'static str, path: &'static str, handler: H)
    where
        H: Handler<T, ApiState>,
        T: 'static,
    {
        self.put(Route { method, path, alias: true }, handler);
    }

    fn put<H, T>(&mut self, route: Route, handler: H)
    where
        H: Handler<T, ApiState>,
        T: 'static,
    {
        let filter = match route.method {
            "POST" => MethodFilter::POST,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let router = std::mem::take(&mut self.router);
        self.router = router.route(route.path, on(filter, handler));
        self.all.push(route);
    }

    pub(crate) fn into_router(self) -> Router<ApiState> {
        self.router.method_not_allowed_fallback(other_method).fallback(elsewhere)
    }
}

/// Returns the context of pages beside the API.
pub(crate) fn page_context(state: &ApiState) -> PageContext {
    PageContext {
        engine: state.engine.clone(),
        cluster: Arc::clone(&state.cluster),
        token: state.token_source(),
        https: state.https,
        port: state.port,
        events: get(events::events).with_state(state.clone()),
    }
}

/// A method that a path does not know.
async fn other_method(State(state): State<ApiState>, method: Method, path: MatchedPath) -> Failure {
    let path = path.as_str().trim_end_matches('/');
    if method == Method::PATCH && path == "/v1/tasks" {
        return Failure::bad_request(
            "no task name was included in the api request. Updating a task requires the task name: \
             '/v1/tasks/:task_name'",
        );
    }
    let api = match path {
        "/v1/status" => "The overallStatus API",
        CLUSTER => "The cluster status API",
        HEALTH => "The health API",
        "/metrics" => "The metrics API",
        "/v1/openapi.json" => "The OpenAPI document",
        "/v1/events" => "The events API",
        path if path.starts_with("/v1/status/tasks") => "The task status API",
        _ => "The task API",
    };
    let routes = Routes::of(&state).all;
    let mut methods: Vec<String> = routes
        .iter()
        .filter(|route| route.path == path)
        .map(|route| format!("'{}'", route.method))
        .collect();
    methods.sort();
    unsupported_method(&method, api, &methods.join(", "))
}

/// A path that nothing is at.
async fn elsewhere(uri: Uri) -> Failure {
    let path = uri.path();
    if path.starts_with("/v1/tasks/") || path.starts_with("/v1/status/tasks/") {
        return unsupported_path(path);
    }
    Failure::new(http::StatusCode::NOT_FOUND, "no such endpoint")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        let mut documented = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                documented.insert((method.to_uppercase(), path.clone()));
            }
        }
        let routes = Routes::new(true, true).all;
        let (aliases, routed): (Vec<Route>, Vec<Route>) =
            routes.into_iter().partition(|route| route.alias);
        let routed: BTreeSet<_> =
            routed.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
        assert_eq!(documented, routed);
        for alias in aliases {
            let path = alias.path.trim_end_matches('/').to_owned();
            assert!(routed.contains(&(alias.method.to_owned(), path)), "{alias:?}");
        }
    }
}
