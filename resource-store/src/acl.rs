//! Who may do what: the seam to a token system, and two ready-made ones.
//!
//! Source: `agent/grpc-external/services/resource/server.go`, Consul 1.21.

#[cfg(feature = "hcl")]
mod policy;
#[cfg(feature = "hcl")]
mod tokens;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
#[cfg(feature = "hcl")]
pub use policy::PolicyError;
use secrecy::{ExposeSecret as _, SecretString};
#[cfg(feature = "hcl")]
pub use tokens::{FileTokens, TokenFileError};

use crate::pb::Tenancy;

/// The accessor id of requests without a token.
pub const ANONYMOUS_TOKEN: &str = "00000000-0000-0000-0000-000000000002";

/// The id in logs of an authorizer that gives none.
const NO_ACCESSOR: &str = "";

/// The text that every denied permission contains.
const DENIED: &str = "Permission denied";

/// The end of a denial to the anonymous token, as Consul 1.19 words it.
const ANONYMOUS_HINT: &str =
    ". The anonymous token is used implicitly when a request does not specify a token.";

/// Why a permission was not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AclError {
    /// The token lacks the permission.
    #[error("{0}")]
    Denied(String),
    /// A read hook cannot decide by the identity alone.
    #[error("authorization check requires the entire resource")]
    NeedResource,
    /// The check itself failed.
    #[error("{0}")]
    Other(String),
}

impl AclError {
    /// Sorts a text of a foreign token system: one that contains
    /// `Permission denied` is a denial.
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.contains(DENIED) { Self::Denied(text) } else { Self::Other(text) }
    }
}

/// The permissions of a token.
///
/// The default hooks of a type ask for operator permissions, those of the demo
/// types for key permissions.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Gives the id under which logs know the token, which is not its secret;
    /// empty if there is none.
    fn accessor(&self) -> &str {
        NO_ACCESSOR
    }
    /// May read what operators read.
    ///
    /// # Errors
    ///
    /// [`AclError::Denied`], or [`AclError::Other`] if that is unknown.
    fn operator_read(&self) -> Result<(), AclError>;
    /// May change what operators change.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::operator_read`].
    fn operator_write(&self) -> Result<(), AclError>;
    /// May read a key.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::operator_read`].
    fn key_read(&self, key: &str) -> Result<(), AclError>;
    /// May write a key.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::operator_read`].
    fn key_write(&self, key: &str) -> Result<(), AclError>;
    /// May list the keys below a prefix.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::operator_read`].
    fn key_list(&self, prefix: &str) -> Result<(), AclError>;
}

/// A token that was looked up.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Permissions of the token.
    pub authorizer: Arc<dyn Authorizer>,
    /// The partition and namespace of the token, which requests without any
    /// take; empty means `default`.
    pub tenancy: Tenancy,
}

/// Looks tokens up.
#[async_trait]
pub trait Authorization: fmt::Debug + Send + Sync + 'static {
    /// Resolves `token` to its permissions in `tenancy`; no token means the
    /// anonymous one.
    ///
    /// # Errors
    ///
    /// A text, if the token is not known or nobody can tell.
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        tenancy: Option<&Tenancy>,
    ) -> Result<Resolved, AclError>;
}

/// Every token may do everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn operator_read(&self) -> Result<(), AclError> {
        Ok(())
    }

    fn operator_write(&self) -> Result<(), AclError> {
        Ok(())
    }

    fn key_read(&self, _: &str) -> Result<(), AclError> {
        Ok(())
    }

    fn key_write(&self, _: &str) -> Result<(), AclError> {
        Ok(())
    }

    fn key_list(&self, _: &str) -> Result<(), AclError> {
        Ok(())
    }
}

/// Gives every token the same rights.
#[derive(Debug, Clone)]
pub struct SameForAll {
    resolved: Resolved,
}

impl SameForAll {
    /// Every token gets `authorizer`.
    pub fn new(authorizer: impl Authorizer + 'static) -> Self {
        Self {
            resolved: Resolved { authorizer: Arc::new(authorizer), tenancy: Tenancy::default() },
        }
    }
}

#[async_trait]
impl Authorization for SameForAll {
    async fn resolve(
        &self,
        _: Option<&SecretString>,
        _: Option<&Tenancy>,
    ) -> Result<Resolved, AclError> {
        Ok(self.resolved.clone())
    }
}

/// The access that a rule grants on keys; each level grants those before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Deny,
    /// Reading.
    Read,
    /// Reading and listing.
    List,
    /// Reading, listing and writing.
    Write,
}

/// The rules of one token: what no rule speaks of is denied, unless
/// [`StaticRules::with_default`] says otherwise.
#[derive(Debug, Clone)]
pub struct StaticRules {
    accessor: String,
    operator: Option<Access>,
    /// By whole key; such a rule decides before those of prefixes.
    exact: BTreeMap<String, Option<Access>>,
    /// By key prefix; the longest that fits decides.
    keys: BTreeMap<String, Access>,
    otherwise: Access,
}

impl StaticRules {
    /// No rights, under the accessor id that denials name.
    pub fn none(accessor: &str) -> Self {
        Self {
            accessor: accessor.to_owned(),
            operator: None,
            exact: BTreeMap::new(),
            keys: BTreeMap::new(),
            otherwise: Access::Deny,
        }
    }

    /// Grants on operator resources.
    #[must_use]
    pub fn with_operator(mut self, access: Access) -> Self {
        self.operator = Some(access);
        self
    }

    /// Grants on keys that begin with `prefix`.
    #[must_use]
    pub fn with_key_prefix(mut self, prefix: &str, access: Access) -> Self {
        self.keys.insert(prefix.to_owned(), access);
        self
    }

    /// Grants on exactly this key.
    #[must_use]
    pub fn with_key(mut self, key: &str, access: Access) -> Self {
        self.exact.insert(key.to_owned(), Some(access));
        self
    }

    /// Sets what holds where no rule speaks; [`Access::Deny`] if this is not
    /// called.
    #[must_use]
    pub fn with_default(mut self, access: Access) -> Self {
        self.otherwise = access;
        self
    }

    fn check(
        &self,
        granted: Access,
        wanted: Access,
        permission: &str,
        on: Option<&str>,
    ) -> Result<(), AclError> {
        if granted >= wanted {
            return Ok(());
        }
        let (who, hint) = if self.accessor == ANONYMOUS_TOKEN {
            ("anonymous token".to_owned(), ANONYMOUS_HINT)
        } else {
            (format!("token with AccessorID '{}'", self.accessor), "")
        };
        let on = on.map(|name| format!(" on {name:?}")).unwrap_or_default();
        Err(AclError::Denied(format!("{DENIED}: {who} lacks permission '{permission}'{on}{hint}")))
    }

    fn operator(&self) -> Access {
        self.operator.unwrap_or(self.otherwise)
    }

    fn key(&self, key: &str) -> Access {
        if let Some(access) = self.exact.get(key).copied().flatten() {
            return access;
        }
        let fitting = self.keys.iter().filter(|(prefix, _)| key.starts_with(prefix.as_str()));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map_or(self.otherwise, |(_, access)| *access)
    }
}

impl Authorizer for StaticRules {
    fn accessor(&self) -> &str {
        &self.accessor
    }

    fn operator_read(&self) -> Result<(), AclError> {
        self.check(self.operator(), Access::Read, "operator:read", None)
    }

    fn operator_write(&self) -> Result<(), AclError> {
        self.check(self.operator(), Access::Write, "operator:write", None)
    }

    fn key_read(&self, key: &str) -> Result<(), AclError> {
        self.check(self.key(key), Access::Read, "key:read", Some(key))
    }

    fn key_write(&self, key: &str) -> Result<(), AclError> {
        self.check(self.key(key), Access::Write, "key:write", Some(key))
    }

    fn key_list(&self, prefix: &str) -> Result<(), AclError> {
        self.check(self.key(prefix), Access::List, "key:list", Some(prefix))
    }
}

/// Tokens with fixed rules, kept in memory.
#[derive(Debug)]
pub struct StaticTokens {
    tokens: Vec<(SecretString, Resolved)>,
    anonymous: Resolved,
}

impl Default for StaticTokens {
    /// No tokens; the anonymous one may do nothing.
    fn default() -> Self {
        let anonymous = resolved(StaticRules::none(ANONYMOUS_TOKEN), Tenancy::default());
        Self { tokens: Vec::new(), anonymous }
    }
}

impl StaticTokens {
    /// Adds a token with rules, and the tenancy that its requests default to.
    #[must_use]
    pub fn with_token(mut self, token: SecretString, rules: StaticRules, tenancy: Tenancy) -> Self {
        self.tokens.push((token, resolved(rules, tenancy)));
        self
    }

    /// Sets the rules of requests without a token.
    #[must_use]
    pub fn with_anonymous(mut self, mut rules: StaticRules) -> Self {
        ANONYMOUS_TOKEN.clone_into(&mut rules.accessor);
        self.anonymous = resolved(rules, Tenancy::default());
        self
    }
}

fn resolved(rules: StaticRules, tenancy: Tenancy) -> Resolved {
    Resolved { authorizer: Arc::new(rules), tenancy }
}

#[async_trait]
impl Authorization for StaticTokens {
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        _: Option<&Tenancy>,
    ) -> Result<Resolved, AclError> {
        let Some(token) = token.filter(|token| !is_anonymous(token)) else {
            return Ok(self.anonymous.clone());
        };
        let found = self.tokens.iter().find(|(known, _)| same_secret(known, token));
        found
            .map(|(_, resolved)| resolved.clone())
            .ok_or_else(|| AclError::Other("ACL not found".to_owned()))
    }
}

/// Returns `true` for the token that requests without one have.
fn is_anonymous(token: &SecretString) -> bool {
    matches!(token.expose_secret(), "" | "anonymous" | ANONYMOUS_TOKEN)
}

/// Compares without telling by the time taken where two secrets differ.
fn same_secret(a: &SecretString, b: &SecretString) -> bool {
    let (a, b) = (a.expose_secret().as_bytes(), b.expose_secret().as_bytes());
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_and_denials_say_what_lacks() {
        let rules = StaticRules::none("abc")
            .with_key_prefix("resource/", Access::Write)
            .with_key_prefix("resource/secret", Access::Deny);
        assert_eq!(rules.key_write("resource/x"), Ok(()));
        assert_eq!(
            rules.key_list("resource/secret").unwrap_err().to_string(),
            "Permission denied: token with AccessorID 'abc' lacks permission 'key:list' on \"resource/secret\""
        );
        assert_eq!(
            StaticRules::none(ANONYMOUS_TOKEN).operator_read().unwrap_err().to_string(),
            "Permission denied: anonymous token lacks permission 'operator:read'. The anonymous token \
             is used implicitly when a request does not specify a token."
        );
    }

    #[test]
    fn foreign_texts_are_sorted_by_what_they_contain() {
        assert!(matches!(AclError::from_text("x: Permission denied: y"), AclError::Denied(_)));
        assert!(matches!(AclError::from_text("no leader"), AclError::Other(_)));
    }

    #[tokio::test]
    async fn tokens_are_told_apart_and_never_shown() {
        let secret = || SecretString::from("s3cret".to_owned());
        let tokens = StaticTokens::default().with_token(
            secret(),
            StaticRules::none("a").with_operator(Access::Read),
            Tenancy::default(),
        );
        let known = tokens.resolve(Some(&secret()), None).await.unwrap();
        assert!(
            known.authorizer.operator_read().is_ok() && known.authorizer.operator_write().is_err()
        );
        let anonymous = tokens.resolve(None, None).await.unwrap();
        assert!(anonymous.authorizer.operator_read().is_err());
        let unknown = SecretString::from("other".to_owned());
        assert!(tokens.resolve(Some(&unknown), None).await.is_err());
        assert!(!format!("{tokens:?}").contains("s3cret"));
    }
}
