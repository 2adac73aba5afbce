//! The rules that keep web pages away from an API that an operator's browser
//! reaches: which names it is addressed by, and which origins may use it.
//!
//! | request | refused with 403, unless |
//! |---|---|
//! | any, over plain HTTP without a token, addressed by a name that is not the server's | the name is an address, or one of the names known |
//! | `POST`, `PATCH`, `PUT`, `DELETE` of a page of another origin | the origin is one of those allowed |
//! | any for the status page, addressed by a name that is not the server's | as above; also over TLS and with a token |
//! | any for the status page that another origin makes, but a link to it | never |
//!
//! The first keeps out a page whose own name was made to resolve to this server
//! (DNS rebinding): to the browser it is of the same origin, and only the header
//! `Host` tells. Over TLS the page's name is not in the certificate, and a token is
//! what it does not have, so both need no such rule. The second keeps out what browsers
//! send to other origins without asking first; the answers to its questions, and to
//! reads, it does not get, because only allowed origins get the headers of CORS.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{ApiState, HEALTH, answer::Failure, pages::is_page};

/// Names of the server, and origins that may use it. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// In lower case, without ports.
    hosts: Arc<BTreeSet<String>>,
    origins: Arc<BTreeSet<String>>,
    /// `true` if a request may address the server by any host name.
    pub(crate) any_host: bool,
}

/// The origin that stands for all.
const ANY: &str = "*";

impl Access {
    /// Knows the names that every machine has for itself.
    pub(crate) fn of_machine() -> Self {
        let mut access = Self::default();
        access.add_hosts(["localhost".to_owned()]);
        if let Some(name) = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok())
        {
            // A name with its domain is also used without it.
            let short = name.split('.').next().unwrap_or_default().to_owned();
            access.add_hosts([name, short]);
        }
        access
    }

    pub(crate) fn add_hosts(&mut self, hosts: impl IntoIterator<Item = String>) {
        let hosts = hosts.into_iter().map(|host| without_port(&host).to_ascii_lowercase());
        Arc::make_mut(&mut self.hosts).extend(hosts.filter(|host| !host.is_empty()));
    }

    pub(crate) fn add_origins(&mut self, origins: impl IntoIterator<Item = String>) {
        let origins = origins.into_iter().map(|origin| origin.to_ascii_lowercase());
        Arc::make_mut(&mut self.origins).extend(origins);
    }

    /// The value of `Access-Control-Allow-Origin` for a request; `None` if its
    /// origin may not read the answer, or it has none.
    fn granted(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.contains(ANY) {
            return Some(HeaderValue::from_static(ANY));
        }
        let origin = headers.get(header::ORIGIN)?;
        let known = origin.to_str().ok()?.to_ascii_lowercase();
        self.origins.contains(&known).then(|| origin.clone())
    }

    fn knows_host(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.trim_start_matches('[').trim_end_matches(']');
        // A name in DNS may end in a dot.
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        address.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    /// Refuses what another web page should not be able to ask of the status page. Who may
    /// use the API from elsewhere may not use this.
    fn check_page(&self, request: &Parts<'_>) -> Result<(), Failure> {
        if let Some(host) = self.unknown_host(request) {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                format!(
                    "the status page does not know itself by the name {host:?}: add it to \
                     api_hosts in the configuration, or address the page by IP address"
                ),
            ));
        }
        let is = |name: &str, expected: &str| {
            request.headers.get(name).is_some_and(|value| value.as_bytes() == expected.as_bytes())
        };
        // A link leads here, and shows nothing to the page that it is on; a frame might.
        let link = *request.method == Method::GET
            && !request.headers.contains_key(header::ORIGIN)
            && is("sec-fetch-mode", "navigate")
            && is("sec-fetch-dest", "document");
        match foreign(request).filter(|_| !link) {
            Some(origin) => Err(Failure::new(
                StatusCode::FORBIDDEN,
                format!("pages of {origin} may not use the status page"),
            )),
            None => Ok(()),
        }
    }

    /// The name by which a request addresses this server, if it is not one of its own.
    fn unknown_host<'a>(&self, request: &Parts<'a>) -> Option<&'a str> {
        let named = [request.headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"))];
        let named = named.into_iter().chain([request.uri.authority().map(Authority::as_str)]);
        named.flatten().find(|host| !self.knows_host(host)).map(without_port)
    }

    /// Refuses what a web page should not be able to ask.
    fn check(&self, request: &Parts<'_>) -> Result<(), Failure> {
        let asks_first = *request.method == Method::OPTIONS;
        if !self.any_host
            && !asks_first
            && request.uri.path() != HEALTH
            && let Some(host) = self.unknown_host(request)
        {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                format!(
                    "this API does not know itself by the name {host:?}: add it to api_hosts in the \
                     configuration, address the API by IP address, or protect it with \
                     api_token_file or tls"
                ),
            ));
        }
        if !is_write(request.method) || self.granted(request.headers).is_some() {
            return Ok(());
        }
        match foreign(request) {
            Some(origin) => Err(Failure::new(
                StatusCode::FORBIDDEN,
                format!(
                    "pages of {origin} may not change tasks: add the origin to api_cors_origins \
                     in the configuration if they should"
                ),
            )),
            None => Ok(()),
        }
    }
}

/// The parts of a request that tell where it comes from.
struct Parts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
}

/// The origin of a page that is not served under the name of this API.
fn foreign(request: &Parts<'_>) -> Option<String> {
    let header = |name| request.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let Some(origin) = header(header::ORIGIN.as_str()) else {
        // A browser that leaves out the origin says at least whether it is another one.
        let site = header("sec-fetch-site").filter(|site| !["same-origin", "none"].contains(site));
        return site.map(|_| "another origin".to_owned());
    };
    let own = header(header::HOST.as_str());
    let page = origin.split_once("://").map(|(_scheme, authority)| authority);
    let same = page.zip(own).is_some_and(|(page, own)| page.eq_ignore_ascii_case(own));
    // What it says comes from outside, and ends in the log.
    (!same).then(|| format!("{:?}", origin.chars().take(200).collect::<String>()))
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// The host of `host:port`, of `[v6]:port`, or of either without a port.
fn without_port(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // The last part of an IPv6 address without brackets is no port.
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    }
}

/// Refuses requests that no other program than a browser with a page of somebody
/// else's would send, and lets allowed origins read the answers.
pub(crate) async fn keep_pages_away(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    if is_page(request.uri().path()) {
        let parts =
            Parts { method: request.method(), uri: request.uri(), headers: request.headers() };
        return match state.access.check_page(&parts) {
            Ok(()) => next.run(request).await,
            Err(failure) => failure.into_response(),
        };
    }
    let granted = state.access.granted(request.headers());
    let preflight = request.method() == Method::OPTIONS;
    let parts = Parts { method: request.method(), uri: request.uri(), headers: request.headers() };
    let mut response = match state.access.check(&parts) {
        Ok(()) if preflight => StatusCode::OK.into_response(),
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    let headers = response.headers_mut();
    if !state.access.origins.is_empty() {
        // A cache must not give one origin's answer to another.
        headers.append(header::VARY, HeaderValue::from_name(header::ORIGIN));
    }
    if let Some(origin) = granted {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"),
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, PUT, PATCH, POST, DELETE"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_off_a_host() {
        for (authority, host) in [
            ("a", "a"),
            ("a:1", "a"),
            ("[::1]:8558", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("user@a:1", "a"),
            ("a:", "a"),
        ] {
            assert_eq!(without_port(authority), host);
        }
    }

    #[test]
    fn addresses_and_own_names_are_known() {
        let mut access = Access::of_machine();
        access.add_hosts(["CTS.example.com:8558".to_owned()]);
        for host in [
            "127.0.0.1:8558",
            "10.1.2.3",
            "[::1]:1",
            "localhost:8558",
            "LocalHost",
            "cts.example.com.",
        ] {
            assert!(access.knows_host(host), "{host}");
        }
        for host in ["evil.example.com", "localhost.evil.com:8558", "127.0.0.1.evil.com", "", "?"] {
            assert!(!access.knows_host(host), "{host}");
        }
    }
}
