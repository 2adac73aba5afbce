//! Queries of ACL tokens, policies and roles, which are polled.

use std::time::Duration;

use super::simple::plain_query;
use crate::{
    Answer, Client, Query, QueryOptions, Result,
    client::AclTokenFilter,
    query::{Position, QueryKey, Subject, common_setters},
    types::{AclAuthMethod, AclBindingRule, AclPolicy, AclRole, AclTokenEntry},
};

plain_query! {
    /// All ACL policies without their rules, sorted by id. A change of rules changes the hash.
    AclPolicies -> Vec<AclPolicy>, "acl.policies", acl_policies,
    |policies| policies.sort_by(|a, b| a.id.cmp(&b.id))
}

plain_query! {
    /// All ACL roles, sorted by id.
    AclRoles -> Vec<AclRole>, "acl.roles", acl_roles,
    |roles| roles.sort_by(|a, b| a.id.cmp(&b.id))
}

plain_query! {
    /// All ACL auth methods without their settings, sorted by name.
    AclAuthMethods -> Vec<AclAuthMethod>, "acl.auth-methods", acl_auth_methods,
    |methods| methods.sort_by(|a, b| a.name.cmp(&b.name))
}

/// ACL tokens without their secrets, sorted by accessor id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct AclTokens {
    filter: AclTokenFilter,
    options: QueryOptions,
}

impl AclTokens {
    /// Queries all tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the query to some of the tokens.
    pub fn filter(mut self, filter: AclTokenFilter) -> Self {
        self.filter = filter;
        self
    }

    common_setters!();
}

impl Query for AclTokens {
    type Value = Vec<AclTokenEntry>;

    fn key(&self) -> QueryKey {
        QueryKey::new("acl.tokens", &(&self.filter, self.options.canonical()))
    }

    fn subject(&self) -> Subject<'_> {
        Subject::default().within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let answer = client.acl_tokens(&self.filter, &self.options.at(position, wait)).await?;
        Ok(answer.map(|mut tokens| {
            tokens.sort_by(|a, b| a.accessor_id.cmp(&b.accessor_id));
            tokens
        }))
    }
}

/// ACL binding rules, sorted by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct AclBindingRules {
    auth_method: Option<String>,
    options: QueryOptions,
}

impl AclBindingRules {
    /// The rules of all auth methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the query to the rules of an auth method.
    pub fn auth_method(mut self, name: impl Into<String>) -> Self {
        self.auth_method = Some(name.into());
        self
    }

    common_setters!();
}

impl Query for AclBindingRules {
    type Value = Vec<AclBindingRule>;

    fn key(&self) -> QueryKey {
        QueryKey::new("acl.binding-rules", &(&self.auth_method, self.options.canonical()))
    }

    fn subject(&self) -> Subject<'_> {
        Subject::default().within(self.options.datacenter.as_deref())
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        let options = self.options.at(position, wait);
        let answer = client.acl_binding_rules(self.auth_method.as_deref(), &options).await?;
        Ok(answer.map(|mut rules| {
            rules.sort_by(|a, b| a.id.cmp(&b.id));
            rules
        }))
    }
}
