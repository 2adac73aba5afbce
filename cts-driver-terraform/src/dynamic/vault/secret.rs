//! A secret in an answer of Vault, and its fields.

use std::{fmt, time::Duration};

use secrecy::SecretString;
use serde_json::Value as Json;

use super::{Problem, Result};

/// Vault's answer for a path.
#[derive(Clone)]
pub(in crate::dynamic) struct Secret {
    data: Json,
    lease: Option<Lease>,
}

/// The lease of a secret, as Vault gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: String,
    pub(super) duration: Duration,
    pub(super) can_be_renewed: bool,
}

impl Secret {
    pub(super) fn of_answer(mut answer: Json) -> Result<Self> {
        let seconds = answer.get("lease_duration").and_then(Json::as_u64).unwrap_or(0);
        let id = answer.get("lease_id").and_then(Json::as_str).unwrap_or_default();
        let can_be_renewed = answer.get("renewable").and_then(Json::as_bool).unwrap_or(false);
        let lease = (!id.is_empty() && seconds > 0).then(|| Lease {
            id: id.to_owned(),
            duration: Duration::from_secs(seconds),
            can_be_renewed,
        });
        let data = answer.get_mut("data").map(Json::take).unwrap_or_default();
        if data.is_object() {
            Ok(Self { data, lease })
        } else {
            Err(Problem::new("Vault's answer holds no data", false))
        }
    }

    /// Returns the secret's lease; `None` if it does not expire.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Returns `true` if both hold the same, whatever their leases are.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.data == other.data
    }

    /// A field as text.
    ///
    /// # Errors
    ///
    /// Which member is missing, or of a type that is no text.
    pub(in crate::dynamic) fn field(&self, path: &[String]) -> Result<SecretString, String> {
        let mut found = &self.data;
        for name in path {
            found = found
                .get(name)
                .filter(|found| !found.is_null())
                .ok_or_else(|| format!("the secret has no member {name:?}"))?;
        }
        match found {
            Json::String(text) => Ok(text.clone().into()),
            Json::Number(number) => Ok(number.to_string().into()),
            Json::Bool(value) => Ok(value.to_string().into()),
            Json::Null | Json::Array(_) | Json::Object(_) => {
                Err("it is no text, number or truth value".to_owned())
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("lease", &self.lease).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::ExposeSecret as _;
    use serde_json::json;

    use super::{Lease, Secret};

    fn field(path: &[&str]) -> Result<String, String> {
        let answer = json!({"lease_id": "", "lease_duration": 9, "data": {
            "data": {"text": "x", "number": 5, "truth": true, "list": [1], "none": null},
        }});
        let path: Vec<_> = path.iter().map(|name| (*name).to_owned()).collect();
        let secret = Secret::of_answer(answer).unwrap();
        assert_eq!(secret.lease(), None, "without an id there is no lease");
        secret.field(&path).map(|value| value.expose_secret().to_owned())
    }

    #[test]
    fn fields_are_texts_numbers_and_truth_values() {
        assert_eq!(field(&["data", "text"]).unwrap(), "x");
        assert_eq!(field(&["data", "number"]).unwrap(), "5");
        assert_eq!(field(&["data", "truth"]).unwrap(), "true");
        for path in [&["data", "list"][..], &["data"], &["data", "none"], &["x"]] {
            assert!(field(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_lease_is_kept_and_an_answer_without_data_refused() {
        let leased = json!({"lease_id": "a", "lease_duration": 9, "data": {}});
        let lease = |can_be_renewed| Lease {
            id: "a".into(),
            duration: Duration::from_secs(9),
            can_be_renewed,
        };
        assert_eq!(Secret::of_answer(leased.clone()).unwrap().lease(), Some(&lease(false)));
        let mut renewable = leased;
        renewable["renewable"] = true.into();
        assert_eq!(Secret::of_answer(renewable).unwrap().lease(), Some(&lease(true)));
        assert!(Secret::of_answer(json!({"data": null})).is_err());
    }
}
