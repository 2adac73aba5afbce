//! Forms that browsers send.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, header},
};
use secrecy::SecretString;
use tokio::time::timeout;

use super::{
    page::{Problem, Viewer},
    sessions::same,
};
/// The longest form, in bytes.
const LONGEST: usize = 32 * 1024;

/// Longest time in which a form has to arrive, as any body of the API's requests.
const ARRIVAL: Duration = Duration::from_secs(15);

/// The fields of a form, none twice.
pub(super) struct Form(BTreeMap<String, SecretString>);

impl Form {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// What is no form, or too long.
    pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = media.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Problem::bad_request("a form of this page is expected"));
        }
        let late_or_long =
            || Problem::bad_request("the form is too long, or did not arrive in time");
        match timeout(ARRIVAL, to_bytes(body, LONGEST)).await {
            Ok(Ok(bytes)) => Self::of(&bytes).ok_or_else(late_or_long),
            Ok(Err(_)) | Err(_) => Err(late_or_long()),
        }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let fields = form_urlencoded::parse(bytes);
        let fields = || fields.map(|(name, value)| (name.into_owned(), value.into_owned().into()));
        (bytes.len() <= LONGEST).then(|| Self(fields().collect()))
    }

    /// The value of a field; empty where it is missing.
    pub(super) fn get(&self, name: &str) -> SecretString {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Checks that the form was made for who sends it.
    ///
    /// # Errors
    ///
    /// It was not, or is older than the session.
    pub(super) fn check(&self, viewer: &Viewer) -> Result<(), Problem> {
        if same(&self.get("form"), &viewer.form) {
            return Ok(());
        }
        Err(Problem::forbidden(
            "this form is not one of your session: go back, load the page again, and repeat it",
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_sent_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Form::of(&bytes).is_some());
        }

        #[test]
        fn what_a_browser_sends_is_read(value in ".{0,40}") {
            let sent: String = form_urlencoded::Serializer::new(String::new())
                .append_pair("token", &value)
                .finish();
            let form = Form::of(sent.as_bytes()).unwrap();
            let (token, other) = (form.get("token"), form.get("other"));
            prop_assert_eq!(token.expose_secret(), value);
            prop_assert_eq!(other.expose_secret(), "");
        }
    }

    #[test]
    fn a_long_form_is_refused() {
        assert!(Form::of(&vec![b'a'; LONGEST + 1]).is_none());
    }
}
