//! Who may see the pages: login, logout, and the check of each request.

use askama::Template;
use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    form::Form,
    page::{Problem, Viewer, render},
    sessions::{LIFE, same},
    state::{LOGIN, UiState},
};

/// Lets a request through to its page if whoever sends it may see that.
///
/// The [`Viewer`] is handed on with the request.
pub(super) async fn admit(
    State(state): State<UiState>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let public = path == LOGIN || path.starts_with("/ui/assets/");
    let viewer = match viewer(&state, request.headers()).await {
        Ok(viewer) => viewer,
        Err(problem) => return problem.show(),
    };
    let Some(viewer) = viewer.or_else(|| public.then(Viewer::nobody)) else {
        return refuse(&request);
    };
    request.extensions_mut().insert(viewer);
    next.run(request).await
}

/// Returns the sender of a request; `None` if it may see nothing.
async fn viewer(state: &UiState, headers: &HeaderMap) -> Result<Option<Viewer>, Problem> {
    let sessions = &state.sessions;
    let Some(file) = &state.token else {
        return Ok(Some(Viewer { form: sessions.anonymous(), session: false }));
    };
    // Read each time, so that sessions of an old token end when there is a new one.
    let token = file().await.map_err(|error| {
        tracing::error!(%error, "api_token_file cannot be read, every request is refused");
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server cannot read its token; its log says why",
        )
    })?;
    let form = cookie(state, headers).and_then(|id| sessions.find(&id, &token));
    Ok(form.map(|form| Viewer { form, session: true }))
}

/// A page leads to the login; what is not read by a person is only refused.
fn refuse(request: &Request) -> Response {
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let page = accepts.is_none_or(|text| text.contains("text/html") || text.contains("*/*"));
    if page && *request.method() == Method::GET && request.uri().path() != "/ui/events" {
        let back = next_page(request.uri().path());
        return Redirect::to(&format!("{LOGIN}?next={back}")).into_response();
    }
    Problem::new(StatusCode::UNAUTHORIZED, "log in first, at /ui/login").show()
}

/// The page to go to after a login, which is one of ours whatever was asked for.
fn next_page(asked: &str) -> &str {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let ours = asked.starts_with("/ui/") && !asked.contains("//") && asked.chars().all(fine);
    let leads_away = [LOGIN, "/ui/logout", "/ui/events", "/ui/assets"];
    if ours && !leads_away.iter().any(|path| asked.starts_with(path)) { asked } else { "/ui/" }
}

#[derive(Template)]
#[template(path = "ui/login.html")]
struct LoginPage<'a> {
    next: &'a str,
    wrong: bool,
    secure: bool,
}

/// `GET /ui/login`
pub(super) async fn login_page(
    State(state): State<UiState>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Response {
    if state.token.is_none() {
        return Redirect::to("/ui/").into_response();
    }
    let asked = parameters.iter().find(|(name, _value)| name == "next");
    let next = next_page(asked.map_or("", |(_name, value)| value));
    render(StatusCode::OK, &LoginPage { next, wrong: false, secure: state.https })
}

/// `POST /ui/login`
pub(super) async fn login(
    State(state): State<UiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let form = Form::read(&headers, body).await.map_err(Problem::show)?;
    let Some(file) = &state.token else { return Ok(Redirect::to("/ui/").into_response()) };
    let Ok(token) = file().await else {
        let text = "the server cannot read its token; its log says why";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).show());
    };
    let asked = form.get("next");
    let next = next_page(asked.expose_secret());
    let given = SecretString::from(form.get("token").expose_secret().trim());
    if !same(&given, &token) {
        tracing::info!("a login to the status page was refused: another token is expected");
        let page = LoginPage { next, wrong: true, secure: state.https };
        return Err(render(StatusCode::UNAUTHORIZED, &page));
    }
    let id = state.sessions.begin(&token);
    let mut response = Redirect::to(next).into_response();
    set_cookie(&state, &mut response, id.expose_secret(), LIFE.as_secs());
    Ok(response)
}

/// `POST /ui/logout`
pub(super) async fn logout(
    State(state): State<UiState>,
    viewer: Viewer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let form = Form::read(&headers, body).await;
    form.and_then(|form| form.check(&viewer)).map_err(Problem::show)?;
    if let Some(id) = cookie(&state, &headers) {
        state.sessions.end(&id);
    }
    let mut response = Redirect::to(LOGIN).into_response();
    set_cookie(&state, &mut response, "", 0);
    Ok(response)
}

/// Name of the cookie. Browsers send cookies to all ports of a host, and instances of a
/// cluster may share one.
fn cookie_name(state: &UiState) -> String {
    let prefix = if state.https { "__Secure-" } else { "" };
    format!("{prefix}cts_session_{}", state.port)
}

/// The id of a session in the cookies of a request.
fn cookie(state: &UiState, headers: &HeaderMap) -> Option<SecretString> {
    let name = cookie_name(state);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|it| it.split_once('='));
    pairs.find(|(key, _value)| key.trim() == name).map(|(_key, value)| value.trim().into())
}

/// The prefix `__Host-` would ask for the path `/`, and send the cookie to the API, too.
fn set_cookie(state: &UiState, response: &mut Response, value: &str, seconds: u64) {
    let secure = if state.https { "; Secure" } else { "" };
    let name = cookie_name(state);
    let cookie =
        format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/ui; Max-Age={seconds}{secure}");
    if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_ours_only() {
        for fine in ["/ui/", "/ui/tasks/web-1", "/ui/cluster"] {
            assert_eq!(next_page(fine), fine);
        }
        for other in [
            "",
            "/",
            "//evil.example.com/ui/",
            "https://evil.example.com",
            "/ui/../v1",
            "/ui//evil.example.com",
            "/ui/\\evil",
            "/ui/login",
            "/ui/a\r\nset-cookie",
        ] {
            assert_eq!(next_page(other), "/ui/", "{other}");
        }
    }
}
