//! The status page: pages for a browser below `/ui/`, beside the API that they show.
//!
//! All of them are made on the server and can be read without JavaScript; a script fetches
//! a page again when the event stream says that something happened. What may be asked, and
//! by whom:
//!
//! | request | answered, if |
//! |---|---|
//! | any | it names the server by an address or a name that it knows (`api::access`) |
//! | by a script or as a part of a page | the page is this server's |
//! | login, style sheet, script | always |
//! | any other | no token is configured, or there is a session of whoever gave the token |
//! | an action | besides, the form has the session's own token |

mod actions;
mod admit;
mod assets;
mod chart;
mod cluster;
mod driver_check;
mod form;
mod page;
mod sessions;
mod show;
mod state;
mod systems;
mod task;
mod tasks;
mod watches;

use axum::{
    Router,
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::{self, Next},
    response::{Redirect, Response},
    routing::{MethodRouter, get, post},
};

use page::Problem;
use state::UiState;

use crate::api::Pages;

/// Makes the status page of a daemon: tasks, cluster, watches, Consul and the driver.
///
/// It costs nothing while nobody looks.
pub fn status_page() -> Pages {
    Pages::new(|context| {
        let events = context.events.clone().with_state(());
        routes(UiState::new(context), events)
    })
}

fn routes(state: UiState, events: MethodRouter<UiState>) -> Router {
    Router::new()
        .route("/ui", get(async || Redirect::permanent("/ui/")))
        .route("/ui/", get(tasks::page))
        .route("/ui/tasks/{name}", get(task::page))
        .route("/ui/tasks/{name}/{action}", post(actions::act))
        .route("/ui/cluster", get(cluster::page))
        .route("/ui/watches", get(watches::page))
        .route("/ui/systems", get(systems::page))
        .route("/ui/events", events)
        .route("/ui/login", get(admit::login_page).post(admit::login))
        .route("/ui/logout", post(admit::logout))
        .route("/ui/assets/{file}", get(assets::file))
        .route("/ui/{*rest}", get(nothing))
        .layer(middleware::from_fn_with_state(state.clone(), admit::admit))
        .layer(middleware::from_fn(protect))
        .with_state(state)
}

async fn nothing() -> Response {
    Problem::not_found("there is no such page").show()
}

/// Content security policy of a page: it uses this server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`: with that a browser sends `Origin: null` beside a form, which is refused.
    // Source: Fetch standard, "append a request `Origin` header".
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers, and keeps pages out of caches.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
