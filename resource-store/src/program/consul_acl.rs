//! What tokens may do, as a Consul says.
//!
//! A token is looked up once, with the policies that it leads to, and its rules
//! are then good for 30 seconds, as in Consul's own agents. While no Consul
//! answers, what was found before stays good, as with Consul's default
//! `extend-cache`; a token that was not looked up before is refused.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    acl::{ANONYMOUS_TOKEN, Access, AclError, Authorization, Resolved, StaticRules},
    pb::Tenancy,
};
use async_trait::async_trait;
use consul_watch::{
    BoxError, Client, ClientConfig, QueryOptions,
    types::{AclPolicy, AclToken, AclTokenExpanded},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// Time for which what was found is good: `acl.token_ttl` of Consul.
const GOOD: Duration = Duration::from_secs(30);
/// Number of tokens that are remembered.
const MOST: usize = 1024;

/// Has a Consul say what a token may do.
#[derive(Debug)]
pub(crate) struct ConsulAcl {
    client: Client,
    /// The latest used last.
    known: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    token: SecretString,
    found: Instant,
    resolved: Resolved,
}

impl ConsulAcl {
    /// Asks the Consul at `url`, with the token that the environment names.
    pub(crate) fn new(url: &str) -> Result<Self, BoxError> {
        let mut config = ClientConfig::from_env()?;
        url.clone_into(&mut config.address);
        let client = Client::new(config)?;
        Ok(Self { client, known: Mutex::default() })
    }

    fn remembered(&self, token: &SecretString) -> Option<(bool, Resolved)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|k| k.token.expose_secret() == token.expose_secret())?;
        let entry = known.remove(place);
        let found = (entry.found.elapsed() < GOOD, entry.resolved.clone());
        known.push(entry);
        Some(found)
    }

    fn remember(&self, token: &SecretString, resolved: Resolved) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|k| k.token.expose_secret() != token.expose_secret());
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push(Known { token: token.clone(), found: Instant::now(), resolved });
    }

    fn forget(&self, token: &SecretString) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|k| k.token.expose_secret() != token.expose_secret());
    }

    async fn look_up(&self, token: &SecretString) -> Result<StaticRules, Problem> {
        let accessor = if token.expose_secret() == ANONYMOUS {
            ANONYMOUS_TOKEN.to_owned()
        } else {
            let own = self
                .client
                .with_token(Some(token.clone()))
                .map_err(|error| Problem::other(&error))?;
            let found = own.acl_token_self(&QueryOptions::default()).await;
            found.map_err(|error| Problem::of(&error))?.value.accessor_id
        };
        let expanded = self.client.acl_token_expanded(&accessor, &QueryOptions::default()).await;
        let expanded =
            expanded.map_err(|error| Problem::other(&error))?.value.ok_or(Problem::Unknown)?;
        let default = match expanded.agent_acl_default_policy.as_str() {
            "allow" => Access::Write,
            _ => Access::Deny,
        };
        let mut rules = StaticRules::none(&accessor).with_default(default);
        for policy in self.policies(&expanded).await.map_err(|error| Problem::other(&error))? {
            rules = rules
                .with_policy(&policy.name, &policy.rules)
                .map_err(|error| Problem::other(&error))?;
        }
        Ok(rules)
    }

    /// Every policy of a token. A Consul before 1.12 does not follow the links.
    async fn policies(&self, token: &AclTokenExpanded) -> Result<Vec<AclPolicy>, BoxError> {
        if !token.resolved_by_agent.is_empty() {
            return Ok(token.expanded_policies.clone());
        }
        let AclToken { policies, roles, .. } = &token.token;
        let options = QueryOptions::default();
        let mut ids: Vec<String> = policies.iter().map(|link| link.id.clone()).collect();
        for role in roles {
            if let Some(role) = self.client.acl_role(&role.id, &options).await?.value {
                ids.extend(role.policies.iter().map(|link| link.id.clone()));
            }
        }
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(self.client.acl_policy(&id, &options).await?.value);
        }
        Ok(found)
    }
}

/// The secret of the anonymous token.
const ANONYMOUS: &str = "anonymous";

/// The reasons why a token's permissions are unknown.
enum Problem {
    /// Consul does not know it.
    Unknown,
    /// Nobody can tell now.
    Other(String),
}

impl Problem {
    fn of(error: &consul_watch::Error) -> Self {
        if error.is_permission_denied() { Self::Unknown } else { Self::other(error) }
    }

    fn other(error: &(impl ToString + ?Sized)) -> Self {
        Self::Other(error.to_string())
    }
}

#[async_trait]
impl Authorization for ConsulAcl {
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        _: Option<&Tenancy>,
    ) -> Result<Resolved, AclError> {
        let anonymous = || SecretString::from(ANONYMOUS);
        let token = token
            .filter(|token| !token.expose_secret().is_empty())
            .map_or_else(anonymous, Clone::clone);
        let remembered = self.remembered(&token);
        if let Some((true, resolved)) = remembered {
            return Ok(resolved);
        }
        match self.look_up(&token).await {
            Ok(rules) => {
                let authorizer = Arc::new(rules);
                let resolved = Resolved { authorizer, tenancy: Tenancy::default() };
                self.remember(&token, resolved.clone());
                Ok(resolved)
            }
            Err(Problem::Unknown) => {
                self.forget(&token);
                Err(AclError::Other("ACL not found".to_owned()))
            }
            Err(Problem::Other(reason)) => {
                tracing::warn!(reason, "Consul cannot say what a token may do");
                remembered.map(|(_, resolved)| resolved).ok_or(AclError::Other(reason))
            }
        }
    }
}
