//! The forms in which Consul shows hashes, times and the mistakes of expressions.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, Utc};

pub(in crate::testing) fn fingerprint(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// A hash of an object's contents, as long as Consul's.
pub(in crate::testing) fn content_hash(content: &impl Hash) -> String {
    let bytes: Vec<u8> =
        (0_u8..4).flat_map(|salt| fingerprint(&(salt, content)).to_be_bytes()).collect();
    STANDARD.encode(bytes)
}

pub(in crate::testing) fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// Words an error of an expression as Go does, where it is a frequent mistake.
pub(in crate::testing) fn go_regexp_words(expression: &str, problem: &regex::Error) -> String {
    let text = problem.to_string();
    let words = if text.contains("unclosed group") {
        format!("missing closing ): `{expression}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{expression}`")
    } else if text.contains("unclosed character class") {
        format!("missing closing ]: `{}`", expression.rsplit('[').next().map_or("", |_| expression))
    } else {
        format!("invalid expression: `{expression}`")
    };
    format!("error parsing regexp: {words}")
}
