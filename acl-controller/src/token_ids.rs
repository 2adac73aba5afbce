//! The ids of a token in a secret: the format, its versions, and its parser.
//!
//! | version | members | written by |
//! |---|---|---|
//! | none | `accessor_id`, `token` | consul-ecs 0.2 to 0.4, and releases of this crate before the format had a version |
//! | 1 | `version`: 1; `accessor_id`, `token`: two UUIDs; `made`: `true` once the token was there | this crate |
//!
//! A task definition uses the member `token` (`valueFrom: "<arn>:token::"`), which is the same in
//! all versions. `{}` is the content of a secret that a deployment creates.

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Format version that this crate writes.
const VERSION: u64 = 1;

/// Accessor id and secret id of a token. `Debug` does not show the secret id.
#[derive(Debug, Clone)]
pub(crate) struct TokenIds {
    /// Accessor id, which names the token.
    pub(crate) accessor: String,
    /// Secret id, which requests send.
    pub(crate) secret: SecretString,
    /// Stage of the token according to the secret.
    pub(crate) stage: Stage,
}

/// Stage of the token whose ids a secret holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Unknown: the original, or a person, wrote the secret.
    Unknown,
    /// To be created, or just created.
    Pending,
    /// Existed with these ids. If it no longer exists, somebody has deleted it.
    Made,
}

/// Content of a secret about a token.
#[derive(Debug)]
pub(crate) enum ParsedSecret {
    /// Both ids, in a form that Consul accepts.
    Ids(TokenIds),
    /// Object of the right kind without a usable pair of ids, such as `{}`.
    Nothing,
    /// Anything else; the reason shows nothing of it.
    Foreign(String),
}

/// Form in which a secret is written. The original reads the two ids and ignores the rest.
#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    accessor_id: &'a str,
    token: &'a str,
    made: bool,
}

impl TokenIds {
    /// Generates two random ids.
    pub(crate) fn generate() -> Self {
        Self {
            accessor: Uuid::new_v4().to_string(),
            secret: Uuid::new_v4().to_string().into(),
            stage: Stage::Pending,
        }
    }

    /// Returns the ids of a token that Consul has.
    pub(crate) fn of_token(accessor: impl Into<String>, secret: SecretString) -> Self {
        Self { accessor: accessor.into(), secret, stage: Stage::Made }
    }

    /// Returns the same accessor id with a new secret id, for a token to be created.
    pub(crate) fn with_new_secret(&self) -> Self {
        Self { accessor: self.accessor.clone(), ..Self::generate() }
    }

    /// Returns the same ids, of an existing token.
    pub(crate) fn made(&self) -> Self {
        Self { stage: Stage::Made, ..self.clone() }
    }

    /// Renders the text that the secret has to hold.
    pub(crate) fn to_json(&self) -> SecretString {
        let written = Written {
            version: VERSION,
            accessor_id: &self.accessor,
            token: self.secret.expose_secret(),
            made: self.stage == Stage::Made,
        };
        // Serialising texts, numbers and flags cannot fail.
        serde_json::to_string(&written).unwrap_or_default().into()
    }

    /// Returns `true` if `secret` is the secret id, whatever the case of its letters.
    pub(crate) fn has_secret(&self, secret: &SecretString) -> bool {
        self.secret.expose_secret().eq_ignore_ascii_case(secret.expose_secret())
    }
}

impl ParsedSecret {
    /// Parses a secret; one without a value counts as [`Nothing`](Self::Nothing).
    ///
    /// Lenient as the original, which is written in Go: the case of members' names is ignored,
    /// `null` is an empty text, and unknown members are skipped.
    pub(crate) fn read(value: Option<&SecretString>) -> Self {
        let Some(value) = value else { return Self::Nothing };
        // Editors on Windows write a byte order mark.
        let text = value.expose_secret().trim_start_matches('\u{feff}');
        let members = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Self::Foreign("it is not a JSON object".to_owned()),
            // The parser's own message may quote the value.
            Err(error) => {
                return Self::Foreign(format!(
                    "it is not a JSON object (line {}, column {})",
                    error.line(),
                    error.column()
                ));
            }
        };
        match Self::of_members(&members) {
            Ok(found) => found,
            Err(problem) => Self::Foreign(problem),
        }
    }

    fn of_members(members: &Map<String, Value>) -> Result<Self, String> {
        let version = member(members, "version").and_then(Value::as_u64);
        // A newer controller's format may mean something else; overwriting it would lose ids.
        if let Some(version) = version.filter(|version| *version > VERSION) {
            return Err(format!(
                "its format has version {version}, and this controller knows those up to {VERSION}"
            ));
        }
        let (accessor, token) = (id(members, "accessor_id")?, id(members, "token")?);
        if !is_usable(&accessor) || !is_usable(&token) {
            return Ok(Self::Nothing);
        }
        let stage = match (version, member(members, "made").and_then(Value::as_bool)) {
            (None, _) => Stage::Unknown,
            (Some(_), Some(true)) => Stage::Made,
            (Some(_), _) => Stage::Pending,
        };
        Ok(Self::Ids(TokenIds { accessor, secret: token.into(), stage }))
    }
}

/// Returns the member of this name, else one that differs in the case of its letters.
fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members.get(name).or_else(|| {
        let mut others = members.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        others.next().map(|(_, value)| value)
    })
}

fn id(members: &Map<String, Value>, name: &str) -> Result<String, String> {
    match member(members, name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.trim().to_owned()),
        Some(_) => Err(format!("its member {name} is not a text")),
    }
}

/// Returns `true` if Consul would accept the text as an id of a token.
fn is_usable(text: &str) -> bool {
    text.len() == 36
        // Consul reserves these ids for the anonymous token and its like.
        && !text.starts_with("00000000-0000-0000-0000-0000000000")
        && Uuid::try_parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> ParsedSecret {
        ParsedSecret::read(Some(&text.into()))
    }

    #[test]
    fn ids_are_written_compactly_and_come_back() {
        let ids = TokenIds::generate();
        let text = ids.to_json().expose_secret().to_owned();
        let expected = format!(
            r#"{{"version":1,"accessor_id":"{}","token":"{}","made":false}}"#,
            ids.accessor,
            ids.secret.expose_secret()
        );
        assert_eq!(text, expected);
        let ParsedSecret::Ids(found) = read(&text) else { panic!("{text}") };
        assert!(found.accessor == ids.accessor && found.has_secret(&ids.secret));
        assert!(!format!("{found:?}").contains(ids.secret.expose_secret()));
    }

    /// The original writes no version and decodes without regard to case; others add members.
    #[test]
    fn every_form_of_a_pair_of_ids_is_read() {
        let (a, t) = (TokenIds::generate().accessor, TokenIds::generate().accessor);
        let upper = t.to_uppercase();
        for (text, stage) in [
            (format!(r#"{{"accessor_id":"{a}","token":"{t}"}}"#), Stage::Unknown),
            (format!(r#"{{"Accessor_ID":"{a}","TOKEN":"{upper}","note":[1]}}"#), Stage::Unknown),
            (
                format!("\u{feff} {{\"token\":\" {t}\\n\",\"accessor_id\":\"{a}\"}}\n"),
                Stage::Unknown,
            ),
            (format!(r#"{{"version":1,"accessor_id":"{a}","token":"{t}"}}"#), Stage::Pending),
            (
                TokenIds::of_token(&a, t.as_str().into()).to_json().expose_secret().to_owned(),
                Stage::Made,
            ),
        ] {
            let ParsedSecret::Ids(found) = read(&text) else { panic!("{text}") };
            assert_eq!((found.accessor.as_str(), found.stage), (a.as_str(), stage), "{text}");
            assert!(found.has_secret(&t.as_str().into()), "{text}");
        }
    }

    #[test]
    fn what_is_half_filled_or_unusable_says_nothing() {
        let id = TokenIds::generate().accessor;
        for text in [
            "{}".to_owned(),
            r#"{"accessor_id":null,"token":null}"#.to_owned(),
            format!(r#"{{"accessor_id":"{id}"}}"#),
            format!(r#"{{"accessor_id":"","token":"{id}"}}"#),
            format!(r#"{{"accessor_id":"{id}","token":"nonsense"}}"#),
            format!(r#"{{"accessor_id":"00000000-0000-0000-0000-000000000002","token":"{id}"}}"#),
        ] {
            assert!(matches!(read(&text), ParsedSecret::Nothing), "{text}");
        }
        assert!(matches!(ParsedSecret::read(None), ParsedSecret::Nothing));
    }

    #[test]
    fn anything_else_is_foreign_and_is_not_shown() {
        for text in [
            "",
            "null",
            "[\"planted\"]",
            "\"planted\"",
            "{planted",
            "{\"token\":\"planted\",\"accessor_id\":7}",
            "{\"version\":2,\"token\":\"planted\",\"accessor_id\":\"planted\"}",
        ] {
            let ParsedSecret::Foreign(reason) = read(text) else { panic!("{text}") };
            assert!(!reason.contains("planted"), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_does_harm(text in "(?s).{0,120}") {
            let parsed = read(&text);
            prop_assert!(!matches!(parsed, ParsedSecret::Ids(_)));
        }

        #[test]
        fn no_mutated_secret_does_harm(at in 0usize..100, byte in 0u8..128) {
            let mut bytes = TokenIds::generate().to_json().expose_secret().as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            drop(read(&String::from_utf8_lossy(&bytes)));
        }
    }
}
