//! Auth methods, binding rules, logins and logouts.

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::Request,
    types::{AclAuthMethod, AclBindingRule, AclLogin, AclReplication, AclToken},
};

/// ACL auth methods, their binding rules, and logins through them.
impl Client {
    /// The auth method with this name; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_auth_method(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclAuthMethod>>> {
        let request = Request::get("acl.auth-method", "/v1/acl/auth-method").segment(name);
        self.acl_find(request.query(options)).await
    }

    /// Lists all auth methods, without their settings. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_auth_methods(
        &self,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclAuthMethod>>> {
        self.read_list(Request::get("acl.auth-methods", "/v1/acl/auth-methods").query(options))
            .await
    }

    /// Makes an auth method.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_auth_method_create(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod> {
        let request = Request::put("acl.auth-method.create", "/v1/acl/auth-method").json(method);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Replaces the auth method with the name of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_auth_method_update(
        &self,
        method: &AclAuthMethod,
        options: &WriteOptions,
    ) -> Result<AclAuthMethod> {
        let request =
            Request::put("acl.auth-method.update", "/v1/acl/auth-method").segment(&method.name);
        self.read(request.json(method).write(options)).await.map(|answer| answer.value)
    }

    /// Removes an auth method with its binding rules and tokens. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_auth_method_delete(&self, name: &str, options: &WriteOptions) -> Result<()> {
        let request =
            Request::delete("acl.auth-method.delete", "/v1/acl/auth-method").segment(name);
        self.acl_remove(request.write(options)).await
    }

    /// The binding rule with this id; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_binding_rule(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclBindingRule>>> {
        let request = Request::get("acl.binding-rule", "/v1/acl/binding-rule").segment(id);
        self.acl_find(request.query(options)).await
    }

    /// The binding rules of an auth method, or of all. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_binding_rules(
        &self,
        auth_method: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Answer<Vec<AclBindingRule>>> {
        let mut request = Request::get("acl.binding-rules", "/v1/acl/binding-rules");
        if let Some(name) = auth_method {
            request = request.param("authmethod", name);
        }
        self.read_list(request.query(options)).await
    }

    /// Makes a binding rule.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_binding_rule_create(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule> {
        let request = Request::put("acl.binding-rule.create", "/v1/acl/binding-rule").json(rule);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Replaces the binding rule with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_binding_rule_update(
        &self,
        rule: &AclBindingRule,
        options: &WriteOptions,
    ) -> Result<AclBindingRule> {
        let request =
            Request::put("acl.binding-rule.update", "/v1/acl/binding-rule").segment(&rule.id);
        self.read(request.json(rule).write(options)).await.map(|answer| answer.value)
    }

    /// Removes a binding rule. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_binding_rule_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        let request =
            Request::delete("acl.binding-rule.delete", "/v1/acl/binding-rule").segment(id);
        self.acl_remove(request.write(options)).await
    }

    /// Gets a token from an auth method. Send it with [`Client::with_token`], and give it back
    /// with [`Client::acl_logout`].
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [permission
    /// denied](crate::Error::is_permission_denied) when no binding rule matches.
    pub async fn acl_login(&self, login: &AclLogin, options: &WriteOptions) -> Result<AclToken> {
        let request = Request::post("acl.login", "/v1/acl/login").json(login);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Removes the token that this client sends, which a login has made.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [permission
    /// denied](crate::Error::is_permission_denied) for a token that no login has made, or that is
    /// gone.
    pub async fn acl_logout(&self, options: &WriteOptions) -> Result<()> {
        self.send(Request::post("acl.logout", "/v1/acl/logout").write(options)).await.map(drop)
    }

    /// Returns the state of a secondary datacenter's copy of the ACLs. Does not block.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_replication(&self, options: &QueryOptions) -> Result<AclReplication> {
        self.read(Request::get("acl.replication", "/v1/acl/replication").query(options))
            .await
            .map(|answer| answer.value)
    }
}
