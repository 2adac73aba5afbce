//! `Response`: an answer with its headers decoded, and the errors that answers stand for.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, de::DeserializeOwned};

use super::nesting;
use crate::{Clock, Error, QueryMeta, Result, SystemClock};

/// Longest part of an error's body that an error keeps.
const MESSAGE_LIMIT: usize = 1024;
/// No proxy makes us wait longer than this.
const RETRY_AFTER_LIMIT: Duration = Duration::from_mins(10);

/// An answer before it is decoded.
#[derive(Debug, Clone)]
pub struct Response {
    operation: &'static str,
    status: StatusCode,
    meta: QueryMeta,
    date: Option<HeaderValue>,
    body: Bytes,
}

impl Response {
    pub(super) fn new(operation: &'static str, answer: http::Response<Bytes>) -> Result<Self> {
        let meta = QueryMeta::from_headers(answer.headers())
            .map_err(|problem| Error::Decode { operation, source: problem.into() })?;
        let date = answer.headers().get(header::DATE).cloned();
        Ok(Self { operation, status: answer.status(), meta, date, body: answer.into_body() })
    }

    /// The status: 2xx, or one that the request accepts.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time that the server gave the answer, to the second, by its own clock;
    /// `None` if it does not tell.
    pub fn date(&self) -> Option<SystemTime> {
        http_date(self.date.as_ref()?.to_str().ok()?)
    }

    /// Returns the metadata from the headers.
    pub fn meta(&self) -> &QueryMeta {
        &self.meta
    }

    /// The headers alone, when the body is done with.
    pub fn into_meta(self) -> QueryMeta {
        self.meta
    }

    /// The body as it came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`]; its text has places and names, but no values.
    ///
    /// Consul stores free-form settings, such as a proxy's, nested up to 10,000 levels deep.
    /// So that one registration cannot make a whole list unreadable, values below level 100
    /// are left out (`null`) when there are more than the decoder follows.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        match serde_json::from_slice(&self.body) {
            Err(error) if nesting::is_too_deep(&error) => {
                let operation = self.operation;
                tracing::warn!(
                    consul.operation = operation,
                    "an answer is nested too deep; values below level 100 are left out"
                );
                let body = nesting::cut(&self.body);
                serde_json::from_slice(&body).map_err(|error| self.undecoded(&error))
            }
            other => other.map_err(|error| self.undecoded(&error)),
        }
    }

    /// Decodes the body into a value that may borrow from it.
    pub(crate) fn json_borrowed<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| self.undecoded(&error))
    }

    fn undecoded(&self, error: &serde_json::Error) -> Error {
        Error::Decode {
            operation: self.operation,
            source: without_values(&error.to_string()).into(),
        }
    }
}

/// Decoders quote the value that they did not expect, and that may be a secret.
fn without_values(text: &str) -> String {
    let text = without_words(text);
    // Between the first quote and the last one, since a value can hold quotes itself.
    let mut parts = text.split('"');
    let mut clean = parts.next().unwrap_or_default().to_owned();
    let mut rest: Vec<&str> = parts.collect();
    if let Some(last) = rest.pop() {
        clean.push_str("\"…\"");
        clean.push_str(last);
    }
    clean
}

/// Words that are not known are quoted in another way.
fn without_words(text: &str) -> String {
    for what in ["unknown variant `", "unknown field `"] {
        if let Some((before, rest)) = text.split_once(what) {
            // From the end, since the word can hold this text itself.
            let after = rest.rsplit_once("`, expected").map_or("", |(_word, after)| after);
            return format!("{before}{what}…`, expected{after}");
        }
    }
    text.to_owned()
}

/// The error for a status outside 2xx. In its text each secret is replaced by its name.
pub(super) fn refused(
    operation: &'static str,
    answer: &http::Response<Bytes>,
    secrets: &[(&str, &SecretString)],
) -> Error {
    let mut text = String::from_utf8_lossy(answer.body()).into_owned();
    let mut secrets = secrets.to_vec();
    // The longest first: a shorter one can be its beginning, and would leave the rest of it.
    secrets.sort_by_key(|(_name, secret)| Reverse(secret.expose_secret().len()));
    for (name, secret) in secrets {
        let secret = secret.expose_secret();
        if !secret.is_empty() {
            // A proxy in front of Consul may echo what it was sent; before the cut,
            // which could leave a part of it.
            text = text.replace(secret, name);
        }
    }
    let message: String = text.trim().chars().take(MESSAGE_LIMIT).collect();
    Error::Status {
        operation,
        status: answer.status(),
        message,
        retry_after: retry_after(answer.headers(), SystemClock.now()),
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    // RFC 9110, 10.2.3: seconds, or a date.
    let wait = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        // A date that has passed, by this machine's clock, asks for no wait.
        http_date(text)?.duration_since(now).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_LIMIT))
}

/// Reads a date of a header.
fn http_date(text: &str) -> Option<SystemTime> {
    chrono::DateTime::parse_from_rfc2822(text).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("99999999999999"), Some(RETRY_AFTER_LIMIT));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn decode_errors_hold_no_values() {
        let answer = http::Response::new(Bytes::from_static(b"{\"a\": \"planted\"}"));
        let response = Response::new("x", answer).unwrap();
        let error = response.json::<std::collections::BTreeMap<String, u64>>().unwrap_err();
        let text = format!("{error:?}");
        assert!(text.contains("line 1") && !text.contains("planted"), "{text}");
        let answer =
            http::Response::new(Bytes::from_static(br#""planted `, expected \" planted""#));
        let response = Response::new("x", answer).unwrap();
        let error = response.json::<crate::types::SessionBehavior>().unwrap_err();
        let text = format!("{error:?}");
        assert!(text.contains("`delete` at line 1") && !text.contains("planted"), "{text}");
    }

    #[test]
    fn messages_are_trimmed_bounded_and_free_of_secrets() {
        let body = format!("  bad planted-token of dXNlcjo= {}", "x".repeat(5000));
        let (token, auth) = ("planted-token".into(), "dXNlcjo=".into());
        let secrets = [("<token>", &token), ("<password>", &auth)];
        let error = refused("x", &http::Response::new(Bytes::from(body)), &secrets);
        let text = error.to_string();
        assert!(text.contains("bad <token> of <password> xxx") && text.len() < 1200, "{text}");
    }

    #[test]
    fn a_secret_that_begins_with_another_one_is_replaced_whole() {
        let (token, password) = ("planted".into(), "planted-longer".into());
        let secrets = [("<token>", &token), ("<password>", &password)];
        let body = Bytes::from_static(b"planted and planted-longer");
        let error = refused("x", &http::Response::new(body), &secrets);
        assert_eq!(error.to_string(), "x: Unexpected response code: 200 (<token> and <password>)");
    }
}
