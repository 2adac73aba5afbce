//! The question that a probe asks, and what counts as an answer: the same with and without TLS.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, StatusCode,
    header::{CONTENT_TYPE, TE},
};

use crate::config::TlsSettings;

/// Longest time for the connection, its TLS handshake and one response.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// Standard health method. A server without it answers with an error of gRPC, which proves the
/// point just as well.
const METHOD: &str = "/grpc.health.v1.Health/Check";
/// Empty message in gRPC's framing: no compression, length 0.
const NO_MESSAGE: [u8; 5] = [0; 5];

/// Returns the name that a server's certificate must have; `None` if its address decides.
pub(in crate::mesh_init) fn server_name(tls: &TlsSettings) -> Option<&str> {
    let name = Some(tls.server_name.as_str()).filter(|_| tls.enabled)?;
    (!name.is_empty() && name.parse::<IpAddr>().is_err()).then_some(name)
}

/// Builds the request to a server, given as `http://host:port`.
pub(super) fn question(server: &str) -> Result<Request<Bytes>, String> {
    Request::post(format!("{server}{METHOD}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Bytes::from_static(&NO_MESSAGE))
        .map_err(|error| error.to_string())
}

/// Accepts any answer in gRPC, even that the method is unknown.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap) -> Result<(), String> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // A prefix, since servers may add `+proto`.
    if kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
        return Ok(());
    }
    Err(format!("what listens there does not speak gRPC: it answered {status}"))
}
