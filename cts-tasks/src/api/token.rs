//! The bearer token of the API.

use std::{io, path::PathBuf, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    ApiState, HEALTH,
    answer::Failure,
    pages::{TokenSource, is_page},
};

/// The file with the token that requests must bear. It is read for each
/// request, so that a new token holds at once.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile {
    path: Arc<PathBuf>,
}

/// A longer file is not one with a token.
const LONGEST: u64 = 16 * 1024;

impl TokenFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path) }
    }

    /// The token, without spaces and line ends around it.
    pub(crate) async fn read(&self) -> io::Result<SecretString> {
        let length = tokio::fs::metadata(&*self.path).await?.len();
        let problem = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        if length > LONGEST {
            return problem("it is longer than 16 KiB");
        }
        let text = SecretString::from(tokio::fs::read_to_string(&*self.path).await?);
        match text.expose_secret().trim() {
            "" => problem("it is empty"),
            token => Ok(token.into()),
        }
    }
}

impl ApiState {
    /// Returns a reader of the token, for pages; `None` where none is needed.
    pub(super) fn token_source(&self) -> Option<TokenSource> {
        let file = self.token.clone()?;
        Some(Arc::new(move || {
            let file = file.clone();
            Box::pin(async move { file.read().await })
        }))
    }
}

/// Refuses a request without the token. Health may be asked by everyone, since
/// Consul's agent bears none, and a browser asks for the status page with a session of its own.
pub(crate) async fn authorize(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let Some(file) = state.token.as_ref().filter(|_| path != HEALTH && !is_page(path)) else {
        return next.run(request).await;
    };
    match file.read().await {
        Ok(token) if bears(request.headers(), &token) => next.run(request).await,
        Ok(_) => refusal(),
        Err(error) => {
            let path = file.path.display();
            tracing::error!(%path, %error, "api_token_file cannot be read, every request is refused");
            let text = "the server cannot read its token; its log says why";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

fn refusal() -> Response {
    let text = "this API needs the header 'Authorization: Bearer <token>' with its token";
    let mut response = Failure::new(StatusCode::UNAUTHORIZED, text).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Compares digests, so that the time taken tells nothing, not even the length.
fn bears(headers: &HeaderMap, token: &SecretString) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split_once(' '));
    let Some((scheme, given)) = given else { return false };
    let digest = |text: &str| Sha256::digest(text.as_bytes());
    scheme.eq_ignore_ascii_case("bearer")
        && bool::from(digest(given.trim()).ct_eq(&digest(token.expose_secret())))
}
