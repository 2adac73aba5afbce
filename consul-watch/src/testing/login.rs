//! `LoginVerifier`: the test's verdict on the bearer tokens of logins.

use std::{collections::BTreeMap, fmt};

use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::types::JsonObject;

/// Judges what programs show at a login to a [`TestConsul`](super::TestConsul).
///
/// A closure over a [`LoginAttempt`] is a verifier.
pub trait LoginVerifier: Send + Sync + 'static {
    /// Verifies the bearer token and returns whom it identifies; the error is the
    /// refusal's text.
    ///
    /// # Errors
    ///
    /// Why it is not trusted: the text that the double answers with status 500.
    fn verify(&self, attempt: &LoginAttempt<'_>) -> Result<LoginIdentity, String>;
}

impl<F> LoginVerifier for F
where
    F: Fn(&LoginAttempt<'_>) -> Result<LoginIdentity, String> + Send + Sync + 'static,
{
    fn verify(&self, attempt: &LoginAttempt<'_>) -> Result<LoginIdentity, String> {
        self(attempt)
    }
}

/// A login that is to be judged.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoginAttempt<'a> {
    /// Name of the auth method.
    pub auth_method: &'a str,
    /// Kind of the auth method, such as `aws-iam`.
    pub kind: &'a str,
    /// Settings of the auth method, which may hold secrets.
    pub config: &'a JsonObject,
    /// Token that the program shows.
    pub bearer_token: &'a SecretString,
}

/// The identity of a login, as the selectors and bind names of binding rules see
/// it.
#[derive(Clone, PartialEq, Default)]
pub struct LoginIdentity {
    /// Fields for selectors, at the top and in groups such as `entity_tags`.
    texts: BTreeMap<String, String>,
    groups: BTreeMap<String, Map<String, Value>>,
    /// Variables for bind names.
    pub(super) variables: BTreeMap<String, String>,
    /// For `aws-iam`: what `BoundIAMPrincipalARNs` must name.
    pub(super) principal: Option<String>,
}

impl fmt::Debug for LoginIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginIdentity")
            .field("principal", &self.principal)
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

impl LoginIdentity {
    /// A role or user of AWS, for `aws-iam`: its ARN, as
    /// `BoundIAMPrincipalARNs` has it, its name, its unique id and its account.
    ///
    /// The double refuses it when the auth method does not trust the ARN.
    pub fn aws_iam(
        arn: impl Into<String>,
        entity_name: impl Into<String>,
        entity_id: impl Into<String>,
        account_id: impl Into<String>,
    ) -> Self {
        let mut identity = Self { principal: Some(arn.into()), ..Self::default() };
        for (name, value) in [
            ("entity_name", entity_name.into()),
            ("entity_id", entity_id.into()),
            ("account_id", account_id.into()),
        ] {
            identity.set(name, value);
        }
        identity
    }

    /// The path of an AWS role or user. Counts where the auth method has
    /// `EnableIAMEntityDetails`.
    #[must_use]
    pub fn entity_path(mut self, path: impl Into<String>) -> Self {
        self.set("entity_path", path.into());
        self
    }

    /// A tag of an AWS role or user. Counts where the auth method names it in `IAMEntityTags`.
    #[must_use]
    pub fn entity_tag(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.member("entity_tags", name, value)
    }

    /// A claim of a JWT that `ClaimMappings` gives this name.
    #[must_use]
    pub fn claim(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.member("value", name, value)
    }

    /// A claim of a JWT that is a list, under its name in `ListClaimMappings`.
    #[must_use]
    pub fn claims(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        self.groups.entry("list".to_owned()).or_default().insert(name.into(), json!(values));
        self
    }

    /// A service account of Kubernetes.
    pub fn service_account(
        namespace: impl Into<String>,
        name: impl Into<String>,
        uid: impl Into<String>,
    ) -> Self {
        Self::default()
            .member("serviceaccount", "namespace", namespace)
            .member("serviceaccount", "name", name)
            .member("serviceaccount", "uid", uid)
    }

    fn set(&mut self, name: &str, value: String) {
        self.texts.insert(name.to_owned(), value.clone());
        self.variables.insert(name.to_owned(), value);
    }

    fn member(mut self, group: &str, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.groups.entry(group.to_owned()).or_default().insert(name.clone(), json!(value));
        self.variables.insert(format!("{group}.{name}"), value);
        self
    }

    /// Returns the fields that selectors see.
    pub(super) fn fields(&self) -> Value {
        let texts = self.texts.iter().map(|(name, value)| (name.clone(), json!(value)));
        let groups = self.groups.iter().map(|(name, group)| (name.clone(), json!(group)));
        Value::Object(texts.chain(groups).collect())
    }

    /// Leaves what an auth method with these variables looks at, with an
    /// empty text for what there is not.
    pub(super) fn restrict(&mut self, known: Vec<String>) {
        self.variables.retain(|name, _| known.contains(name));
        for name in known {
            self.variables.entry(name).or_default();
        }
        if self.principal.is_some() {
            let variables = &self.variables;
            self.texts.retain(|name, _| variables.contains_key(name));
            if let Some(tags) = self.groups.get_mut("entity_tags") {
                tags.retain(|name, _| variables.contains_key(&format!("entity_tags.{name}")));
            }
        }
    }
}
