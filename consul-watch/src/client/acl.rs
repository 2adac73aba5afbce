//! `AclApi`: the calls about ACLs, as a trait that other crates take.

use async_trait::async_trait;

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::AclTokenFilter,
    types::{
        AclAuthMethod, AclBindingRule, AclLogin, AclPolicy, AclRole, AclToken, AclTokenEntry,
        AclTokenRequest,
    },
};

/// ACLs, for those who need nothing else of Consul.
///
/// Writes are the primary datacenter's: they fail while it has no leader.
#[async_trait]
pub trait AclApi: std::fmt::Debug + Send + Sync + 'static {
    /// The token with this accessor id; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_token(
        &self,
        accessor_id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclToken>>>;

    /// Tokens, without their secrets.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_tokens(
        &self,
        filter: &AclTokenFilter,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclTokenEntry>>>;

    /// Makes a token. With ids of the caller's choice it is not made twice.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_token_create(
        &self,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken>;

    /// Makes a token into what the request says; what it does not say is emptied.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_token_update(
        &self,
        accessor_id: &str,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken>;

    /// Removes a token. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_token_delete(&self, accessor_id: &str, options: &WriteOptions) -> Result<()>;

    /// The policy with this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_policy_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclPolicy>>>;

    /// Lists all policies, without their rules.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_policies(&self, options: &QueryOptions) -> Result<Answer<Vec<AclPolicy>>>;

    /// Makes a policy.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_policy_create(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy>;

    /// Replaces the policy with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_policy_update(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy>;

    /// Removes a policy. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_policy_delete(&self, id: &str, options: &WriteOptions) -> Result<()>;

    /// The role with this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_role_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclRole>>>;

    /// Lists all roles.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_roles(&self, options: &QueryOptions) -> Result<Answer<Vec<AclRole>>>;

    /// Makes a role.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_role_create(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole>;

    /// Replaces the role with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_role_update(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole>;

    /// Removes a role. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_role_delete(&self, id: &str, options: &WriteOptions) -> Result<()>;

    /// The auth method with this name; `None` when there is none.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_auth_method(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclAuthMethod>>>;

    /// Makes an auth method.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_auth_method_create(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod>;

    /// Replaces the auth method with the name of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_auth_method_update(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod>;

    /// Removes an auth method with its binding rules and tokens.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_auth_method_delete(&self, name: &str, options: &WriteOptions) -> Result<()>;

    /// The binding rules of an auth method, or of all.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_binding_rules(
        &self,
        auth_method: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclBindingRule>>>;

    /// Makes a binding rule.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_binding_rule_create(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule>;

    /// Replaces the binding rule with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_binding_rule_update(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule>;

    /// Removes a binding rule. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_binding_rule_delete(&self, id: &str, options: &WriteOptions) -> Result<()>;

    /// Gets a token from an auth method.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_login(&self, login: &AclLogin, options: &WriteOptions) -> Result<AclToken>;

    /// Removes the token that is sent, which a login has made.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn acl_logout(&self, options: &WriteOptions) -> Result<()>;
}

#[async_trait]
impl AclApi for Client {
    async fn acl_token(
        &self,
        accessor_id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclToken>>> {
        Self::acl_token(self, accessor_id, options).await
    }

    async fn acl_tokens(
        &self,
        filter: &AclTokenFilter,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclTokenEntry>>> {
        Self::acl_tokens(self, filter, options).await
    }

    async fn acl_token_create(
        &self,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken> {
        Self::acl_token_create(self, token, options).await
    }

    async fn acl_token_update(
        &self,
        accessor_id: &str,
        token: &AclTokenRequest,
        options: &WriteOptions,
    ) -> Result<AclToken> {
        Self::acl_token_update(self, accessor_id, token, options).await
    }

    async fn acl_token_delete(&self, accessor_id: &str, options: &WriteOptions) -> Result<()> {
        Self::acl_token_delete(self, accessor_id, options).await
    }

    async fn acl_policy_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclPolicy>>> {
        Self::acl_policy_by_name(self, name, options).await
    }

    async fn acl_policies(&self, options: &QueryOptions) -> Result<Answer<Vec<AclPolicy>>> {
        Self::acl_policies(self, options).await
    }

    async fn acl_policy_create(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy> {
        Self::acl_policy_create(self, policy, options).await
    }

    async fn acl_policy_update(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy> {
        Self::acl_policy_update(self, policy, options).await
    }

    async fn acl_policy_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        Self::acl_policy_delete(self, id, options).await
    }

    async fn acl_role_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclRole>>> {
        Self::acl_role_by_name(self, name, options).await
    }

    async fn acl_roles(&self, options: &QueryOptions) -> Result<Answer<Vec<AclRole>>> {
        Self::acl_roles(self, options).await
    }

    async fn acl_role_create(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole> {
        Self::acl_role_create(self, role, options).await
    }

    async fn acl_role_update(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole> {
        Self::acl_role_update(self, role, options).await
    }

    async fn acl_role_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        Self::acl_role_delete(self, id, options).await
    }

    async fn acl_auth_method(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclAuthMethod>>> {
        Self::acl_auth_method(self, name, options).await
    }

    async fn acl_auth_method_create(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod> {
        Self::acl_auth_method_create(self, method, options).await
    }

    async fn acl_auth_method_update(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod> {
        Self::acl_auth_method_update(self, method, options).await
    }

    async fn acl_auth_method_delete(&self, name: &str, options: &WriteOptions) -> Result<()> {
        Self::acl_auth_method_delete(self, name, options).await
    }

    async fn acl_binding_rules(
        &self,
        auth_method: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclBindingRule>>> {
        Self::acl_binding_rules(self, auth_method, options).await
    }

    async fn acl_binding_rule_create(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule> {
        Self::acl_binding_rule_create(self, rule, options).await
    }

    async fn acl_binding_rule_update(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule> {
        Self::acl_binding_rule_update(self, rule, options).await
    }

    async fn acl_binding_rule_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        Self::acl_binding_rule_delete(self, id, options).await
    }

    async fn acl_login(&self, login: &AclLogin, options: &WriteOptions) -> Result<AclToken> {
        Self::acl_login(self, login, options).await
    }

    async fn acl_logout(&self, options: &WriteOptions) -> Result<()> {
        Self::acl_logout(self, options).await
    }
}
