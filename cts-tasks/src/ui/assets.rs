//! The style sheet, the script and the icon, which are part of the program.

use axum::{
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

use super::page::Problem;
use crate::hex::hex;

/// Name, media type and content.
const ALL: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../../assets/ui/style.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("../../assets/ui/live.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/ui/icon.svg")),
];

/// `GET /ui/assets/{file}`
pub(super) async fn file(Path(file): Path<String>, headers: HeaderMap) -> Response {
    let Some((_, media, text)) = ALL.iter().find(|(name, ..)| *name == file) else {
        return Problem::not_found("there is no such file").show();
    };
    // Another version of the program has another tag; a browser asks each time.
    let tag = format!("\"{:.16}\"", hex(&Sha256::digest(text.as_bytes())));
    let known =
        headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let kept = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, "no-cache")];
    if known {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    ([(header::CONTENT_TYPE, *media)], kept, *text).into_response()
}
