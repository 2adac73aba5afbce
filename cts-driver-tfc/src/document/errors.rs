//! Turns error documents, and answers that are none, into messages.

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// Longest excerpt of a body that is no error document, in characters.
const EXCERPT: usize = 200;

/// Largest number of errors of one document that are shown.
const MOST: usize = 10;

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Text(String),
    Object(Detailed),
}

/// Error object. `status` is a text in most answers and a number in some.
#[derive(Deserialize)]
struct Detailed {
    #[serde(default)]
    status: Value,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    detail: Option<String>,
}

impl Entry {
    fn text(self, status: StatusCode) -> String {
        match self {
            Self::Text(text) => text,
            Self::Object(Detailed { status: code, title, detail }) => {
                let title = title.filter(|title| !title.is_empty());
                match (title, detail.filter(|detail| !detail.is_empty())) {
                    (Some(title), Some(detail)) => format!("{title}: {detail}"),
                    (None, Some(detail)) => detail,
                    (Some(title), None) => match code {
                        Value::String(code) => format!("{code}: {title}"),
                        Value::Number(code) => format!("{code}: {title}"),
                        _ => format!("{}: {title}", status.as_u16()),
                    },
                    (None, None) => reason(status),
                }
            }
        }
    }
}

/// Formats a failed answer for a person: one line for each error.
///
/// A body that is no error document, such as the page of a proxy, is shown by the status and an
/// excerpt.
///
/// Source: HCP Terraform API documentation; go-tfe v2 `api_error.go`.
pub(crate) fn error_message(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<Errors>(body) {
        Ok(Errors { errors }) if !errors.is_empty() => {
            let errors = errors.into_iter().take(MOST).map(|error| error.text(status));
            errors.collect::<Vec<_>>().join("\n")
        }
        Ok(Errors { .. }) => reason(status),
        Err(_no_document) => {
            let text = String::from_utf8_lossy(body);
            // HTML of a proxy on one line, or it would tear the log apart.
            let words: Vec<&str> = text.split_whitespace().collect();
            let excerpt: String = words.join(" ").chars().take(EXCERPT).collect();
            if excerpt.is_empty() {
                reason(status)
            } else {
                format!("{} ({excerpt})", reason(status))
            }
        }
    }
}

fn reason(status: StatusCode) -> String {
    format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())
        .trim_end()
        .to_owned()
}
