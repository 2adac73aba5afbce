//! The ids of a token, as a secret holds them.

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The two ids of a token. `Debug` does not show the secret one.
#[derive(Debug, Clone)]
pub(crate) struct TokenIds {
    /// Names the token.
    pub(crate) accessor: String,
    /// What requests send.
    pub(crate) secret: SecretString,
}

/// What a secret says about a token.
#[derive(Debug)]
pub(crate) enum Said {
    /// Both ids, in a form that Consul takes.
    Ids(TokenIds),
    /// An object of the right kind without a pair of ids that could be used, such as `{}`.
    Nothing,
    /// Something else; the reason shows nothing of it.
    Foreign(String),
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Read {
    #[serde(deserialize_with = "nullable")]
    accessor_id: String,
    #[serde(deserialize_with = "nullable")]
    token: String,
}

#[derive(Serialize)]
struct Written<'a> {
    accessor_id: &'a str,
    token: &'a str,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl TokenIds {
    /// Two new random ids.
    pub(crate) fn generate() -> Self {
        Self { accessor: Uuid::new_v4().to_string(), secret: Uuid::new_v4().to_string().into() }
    }

    /// The text that the secret is to hold.
    pub(crate) fn to_json(&self) -> SecretString {
        let written = Written { accessor_id: &self.accessor, token: self.secret.expose_secret() };
        // Two texts always become JSON.
        serde_json::to_string(&written).unwrap_or_default().into()
    }

    /// Whether `secret` is the secret id.
    pub(crate) fn has_secret(&self, secret: &SecretString) -> bool {
        self.secret.expose_secret().eq_ignore_ascii_case(secret.expose_secret())
    }
}

impl Said {
    /// Reads a secret; one without a value says nothing.
    pub(crate) fn read(value: Option<&SecretString>) -> Self {
        let Some(value) = value else { return Self::Nothing };
        // An array would pass for the two members.
        let text = value.expose_secret();
        if !text.trim_start().starts_with('{') {
            return Self::Foreign("it is not a JSON object".to_owned());
        }
        match serde_json::from_str::<Read>(text) {
            Ok(Read { accessor_id, token }) => {
                if is_usable(&accessor_id) && is_usable(&token) {
                    Self::Ids(TokenIds { accessor: accessor_id, secret: token.into() })
                } else {
                    Self::Nothing
                }
            }
            // The decoder's own words may quote the value.
            Err(error) => Self::Foreign(format!(
                "it is not a JSON object with the texts accessor_id and token (line {}, column {})",
                error.line(),
                error.column()
            )),
        }
    }
}

/// Whether Consul would take the text as an id of a token.
fn is_usable(text: &str) -> bool {
    text.len() == 36
        && !text.starts_with("00000000-0000-0000-0000-0000000000")
        && Uuid::try_parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Said {
        Said::read(Some(&text.into()))
    }

    #[test]
    fn ids_are_written_compactly_and_come_back() {
        let ids = TokenIds::generate();
        let text = ids.to_json().expose_secret().to_owned();
        let expected = format!(
            r#"{{"accessor_id":"{}","token":"{}"}}"#,
            ids.accessor,
            ids.secret.expose_secret()
        );
        assert_eq!(text, expected);
        let Said::Ids(found) = read(&text) else { panic!("{text}") };
        assert!(found.accessor == ids.accessor && found.has_secret(&ids.secret));
        assert!(!format!("{found:?}").contains(ids.secret.expose_secret()));
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
            assert!(matches!(read(&text), Said::Nothing), "{text}");
        }
        assert!(matches!(Said::read(None), Said::Nothing));
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
        ] {
            let Said::Foreign(reason) = read(text) else { panic!("{text}") };
            assert!(!reason.contains("planted"), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_does_harm(text in "(?s).{0,120}") {
            let said = read(&text);
            prop_assert!(!matches!(said, Said::Ids(_)));
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
