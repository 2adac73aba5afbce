//! Tokens with rules by type and tenancy, as a file gives them.
//!
//! ```json
//! {
//!   "tokens": [
//!     {
//!       "name": "ci",
//!       "secret": "b6f8…",
//!       "operator": "read",
//!       "rules": [
//!         {"type": "demo.v2.*", "partition": "default", "namespace": "*", "access": "write"},
//!         {"type": "demo.v2.Festival", "access": "deny"}
//!       ]
//!     }
//!   ],
//!   "anonymous": {"rules": [{"type": "demo.v1.Artist", "access": "read"}]}
//! }
//! ```

use async_trait::async_trait;
use secrecy::SecretString;
use serde::Deserialize;

use super::{
    ANONYMOUS_TOKEN, Access, AclError, Authorization, Resolved, StaticRules, is_anonymous,
    resolved, same_secret,
};
use crate::{pb::Tenancy, tenancy::WILDCARD};

/// A file of tokens and rules cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenFileError(String);

/// Tokens, and what each may do with which types in which tenancies.
///
/// A rule covers the types that its `type` names, `group.version.Kind` or the
/// beginning of that and a `*`, in the partition and namespace that it names;
/// `*`, the default, is any. Of the rules that cover a resource the one whose
/// type is the longest counts, and of those the last. Types that ask for
/// operator permissions, as all do whose registration brings no hooks, go by
/// `operator`: `deny`, the default, `read` or `write`.
///
/// A list or watch over every namespace needs a rule for every namespace, and
/// then shows what the token may read.
#[derive(Debug)]
pub struct FileTokens {
    tokens: Vec<FileToken>,
    anonymous: Rights,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tokens: Vec<RawToken>,
    #[serde(default)]
    anonymous: Rights,
}

/// Without `Debug`: it holds a secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    name: String,
    secret: String,
    #[serde(default)]
    partition: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operator: RuleAccess,
    #[serde(default)]
    rules: Vec<Rule>,
}

impl std::fmt::Debug for RawToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawToken").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct FileToken {
    name: String,
    secret: SecretString,
    tenancy: Tenancy,
    rights: Rights,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rights {
    #[serde(default)]
    operator: RuleAccess,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    r#type: String,
    #[serde(default = "any")]
    partition: String,
    #[serde(default = "any")]
    namespace: String,
    access: RuleAccess,
}

fn any() -> String {
    WILDCARD.to_owned()
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuleAccess {
    #[default]
    Deny,
    Read,
    List,
    Write,
}

impl From<RuleAccess> for Access {
    fn from(access: RuleAccess) -> Self {
        match access {
            RuleAccess::Deny => Self::Deny,
            RuleAccess::Read => Self::Read,
            RuleAccess::List => Self::List,
            RuleAccess::Write => Self::Write,
        }
    }
}

impl FileTokens {
    /// Reads a file's text, which is JSON.
    ///
    /// # Errors
    ///
    /// If it is no JSON of this shape, a secret has less than 16 characters, two
    /// tokens share one, or a type is named wrongly. The text names line and
    /// token, never a secret.
    pub fn parse(json: &str) -> Result<Self, TokenFileError> {
        let file: File = serde_json::from_str(json).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            // What serde quotes may be a secret in the wrong place.
            let problem = match error.classify() {
                serde_json::error::Category::Data => {
                    "a field is unknown, missing, or of the wrong type"
                }
                _ => "this is no JSON",
            };
            TokenFileError(format!("{place}: {problem}"))
        })?;
        let mut tokens: Vec<FileToken> = Vec::new();
        for raw in file.tokens {
            let token = raw.check()?;
            if let Some(other) = tokens.iter().find(|t| same_secret(&t.secret, &token.secret)) {
                let text =
                    format!("the tokens {:?} and {:?} have one secret", other.name, token.name);
                return Err(TokenFileError(text));
            }
            tokens.push(token);
        }
        file.anonymous.check("anonymous")?;
        Ok(Self { tokens, anonymous: file.anonymous })
    }
}

impl RawToken {
    fn check(self) -> Result<FileToken, TokenFileError> {
        let Self { name, secret, partition, namespace, operator, rules } = self;
        if secret.len() < 16 {
            let text = format!("the secret of the token {name:?} has less than 16 characters");
            return Err(TokenFileError(text));
        }
        let rights = Rights { operator, rules };
        rights.check(&name)?;
        let tenancy = Tenancy::new(&partition, &namespace);
        Ok(FileToken { name, secret: secret.into(), tenancy, rights })
    }
}

impl Rights {
    fn check(&self, token: &str) -> Result<(), TokenFileError> {
        for rule in &self.rules {
            let full = rule.r#type.split('.').filter(|part| !part.is_empty()).count() == 3;
            let beginning = rule.r#type.ends_with('*');
            if !(full || beginning) || rule.r#type.trim_end_matches('*').contains('*') {
                let text = format!(
                    "a rule of the token {token:?} is for the type {:?}, which is neither \
                     group.version.Kind nor a beginning of that with a * after it",
                    rule.r#type
                );
                return Err(TokenFileError(text));
            }
        }
        Ok(())
    }

    /// Gives what holds in one tenancy, in the form of rules on keys, which is
    /// what types with hooks of their own ask for.
    fn within(&self, accessor: &str, tenancy: Option<&Tenancy>) -> StaticRules {
        let none = Tenancy::default();
        let tenancy = tenancy.unwrap_or(&none);
        let covers = |rule: &str, unit: &str| {
            let unit = if unit.is_empty() { crate::DEFAULT_UNIT } else { unit };
            rule == WILDCARD || rule == unit
        };
        let mut rules = StaticRules::none(accessor).with_operator(self.operator.into());
        for rule in &self.rules {
            if !covers(&rule.partition, &tenancy.partition)
                || !covers(&rule.namespace, &tenancy.namespace)
            {
                continue;
            }
            let access = rule.access.into();
            rules = match rule.r#type.strip_suffix('*') {
                Some(beginning) => rules.with_key_prefix(&format!("resource/{beginning}"), access),
                None => rules
                    .with_key(&format!("resource/{}", rule.r#type), access)
                    .with_key_prefix(&format!("resource/{}/", rule.r#type), access),
            };
        }
        rules
    }
}

#[async_trait]
impl Authorization for FileTokens {
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        tenancy: Option<&Tenancy>,
    ) -> Result<Resolved, AclError> {
        let Some(token) = token.filter(|token| !is_anonymous(token)) else {
            let rules = self.anonymous.within(ANONYMOUS_TOKEN, tenancy);
            return Ok(resolved(rules, Tenancy::default()));
        };
        let found = self.tokens.iter().find(|known| same_secret(&known.secret, token));
        let found = found.ok_or_else(|| AclError::Other("ACL not found".to_owned()))?;
        // What a request leaves out is the token's own.
        let mut asked = tenancy.cloned().unwrap_or_default();
        if asked.partition.is_empty() {
            asked.partition.clone_from(&found.tenancy.partition);
        }
        if asked.namespace.is_empty() {
            asked.namespace.clone_from(&found.tenancy.namespace);
        }
        let rules = found.rights.within(&found.name, Some(&asked));
        Ok(resolved(rules, found.tenancy.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "tokens": [
            {"name": "ci", "secret": "0123456789abcdef", "operator": "read", "rules": [
                {"type": "demo.v2.*", "partition": "default", "access": "write"},
                {"type": "demo.v2.Festival", "access": "deny"},
                {"type": "demo.v1.Artist", "namespace": "team", "access": "list"}
            ]},
            {"name": "team", "secret": "fedcba9876543210", "namespace": "team", "rules": [
                {"type": "demo.v1.Artist", "namespace": "team", "access": "read"}
            ]}
        ],
        "anonymous": {"rules": [{"type": "*", "access": "read"}]}
    }"#;

    async fn of(secret: &str, partition: &str, namespace: &str) -> Resolved {
        let tokens = FileTokens::parse(FILE).unwrap();
        let token = Some(SecretString::from(secret.to_owned()));
        let tenancy = Tenancy::new(partition, namespace);
        tokens.resolve(token.as_ref(), Some(&tenancy)).await.unwrap()
    }

    #[tokio::test]
    async fn rules_hold_for_types_and_tenancies() {
        let ci = of("0123456789abcdef", "default", "default").await.authorizer;
        assert!(ci.key_write("resource/demo.v2.Artist/korn").is_ok());
        assert!(ci.key_list("resource/demo.v2.Artist").is_ok());
        assert!(ci.key_read("resource/demo.v2.Festival/x").is_err());
        assert!(ci.key_list("resource/demo.v2.Festival").is_err());
        assert!(ci.key_read("resource/demo.v1.Artist/korn").is_err(), "another namespace");
        assert!(ci.operator_read().is_ok() && ci.operator_write().is_err());
        let team = of("0123456789abcdef", "default", "team").await.authorizer;
        assert!(team.key_list("resource/demo.v1.Artist").is_ok());
        assert!(team.key_write("resource/demo.v1.Artist/korn").is_err());
        assert!(team.key_read("resource/demo.v1.ArtistX/korn").is_err(), "another type");
        let elsewhere = of("0123456789abcdef", "other", "default").await.authorizer;
        assert!(elsewhere.key_read("resource/demo.v2.Artist/korn").is_err());
        let everywhere = of("0123456789abcdef", "*", "*").await.authorizer;
        assert!(everywhere.key_list("resource/demo.v1.Artist").is_err(), "one namespace only");
    }

    #[tokio::test]
    async fn a_token_has_a_tenancy_of_its_own() {
        let own = of("fedcba9876543210", "", "").await;
        assert_eq!(own.tenancy.namespace, "team");
        assert!(own.authorizer.key_read("resource/demo.v1.Artist/x").is_ok());
        let other = of("fedcba9876543210", "", "default").await.authorizer;
        assert!(other.key_read("resource/demo.v1.Artist/x").is_err());
        let anonymous = of("", "", "").await.authorizer;
        assert!(anonymous.key_read("resource/x").is_ok());
        let denied = anonymous.key_write("resource/x").unwrap_err();
        assert!(denied.to_string().contains("anonymous token lacks permission 'key:write'"));
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        let token = |rest: &str| {
            format!(r#"{{"tokens": [{{"name": "ci", "secret": "s3cret-0123456789"{rest}}}]}}"#)
        };
        for (text, said) in [
            ("[".to_owned(), "no JSON"),
            (r#"{"tokens": "s3cret-0123456789"}"#.to_owned(), "line 1"),
            (token(r#", "unknown": 1"#), "a field is unknown"),
            (token(r#", "rules": [{"type": "Artist", "access": "read"}]"#), "\"ci\""),
            (token(r#", "rules": [{"type": "*.v2.*", "access": "read"}]"#), "\"*.v2.*\""),
            (r#"{"tokens": [{"name": "ci", "secret": "s3cret"}]}"#.to_owned(), "less than 16"),
            (
                FILE.replace("fedcba9876543210", "0123456789abcdef"),
                "the tokens \"ci\" and \"team\" have one secret",
            ),
        ] {
            let error = FileTokens::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
        }
        let shown = format!("{:?}", FileTokens::parse(FILE).unwrap());
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn no_file_panics(cut in 0_usize..600, byte in proptest::prelude::any::<char>()) {
            let broken: String = FILE.chars().take(cut).chain([byte]).collect();
            drop(FileTokens::parse(&broken));
        }
    }
}
