//! ACL policies and roles: calls of `/v1/acl/policy` and `/v1/acl/role`.

use crate::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    client::Request,
    types::{AclPolicy, AclRole},
};

/// ACL policies.
impl Client {
    /// The policy with this id; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policy(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclPolicy>>> {
        let request = Request::get("acl.policy", "/v1/acl/policy").segment(id);
        self.acl_find(request.query(options)).await
    }

    /// The policy with this name; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policy_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclPolicy>>> {
        let request = Request::get("acl.policy", "/v1/acl/policy/name").segment(name);
        self.acl_find(request.query(options)).await
    }

    /// Lists all policies, without their rules. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policies(&self, options: &QueryOptions) -> Result<Answer<Vec<AclPolicy>>> {
        self.read_list(Request::get("acl.policies", "/v1/acl/policies").query(options)).await
    }

    /// Makes a policy.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policy_create(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy> {
        let request = Request::put("acl.policy.create", "/v1/acl/policy").json(policy);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Replaces the policy with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policy_update(
        &self,
        policy: &AclPolicy,
        options: &WriteOptions,
    ) -> Result<AclPolicy> {
        let request = Request::put("acl.policy.update", "/v1/acl/policy").segment(&policy.id);
        self.read(request.json(policy).write(options)).await.map(|answer| answer.value)
    }

    /// Removes a policy. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_policy_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("acl.policy.delete", "/v1/acl/policy").segment(id);
        self.acl_remove(request.write(options)).await
    }
}

/// ACL roles.
impl Client {
    /// The role with this id; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_role(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclRole>>> {
        let request = Request::get("acl.role", "/v1/acl/role").segment(id);
        self.acl_find(request.query(options)).await
    }

    /// The role with this name; `None` when there is none. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_role_by_name(
        &self,
        name: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AclRole>>> {
        let request = Request::get("acl.role", "/v1/acl/role/name").segment(name);
        self.acl_find(request.query(options)).await
    }

    /// Lists all roles. Blocks by index.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_roles(&self, options: &QueryOptions) -> Result<Answer<Vec<AclRole>>> {
        self.read_list(Request::get("acl.roles", "/v1/acl/roles").query(options)).await
    }

    /// Makes a role.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_role_create(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole> {
        let request = Request::put("acl.role.create", "/v1/acl/role").json(role);
        self.read(request.write(options)).await.map(|answer| answer.value)
    }

    /// Replaces the role with the id of the given one.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_role_update(&self, role: &AclRole, options: &WriteOptions) -> Result<AclRole> {
        let request = Request::put("acl.role.update", "/v1/acl/role").segment(&role.id);
        self.read(request.json(role).write(options)).await.map(|answer| answer.value)
    }

    /// Removes a role. What is not there counts as removed.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn acl_role_delete(&self, id: &str, options: &WriteOptions) -> Result<()> {
        let request = Request::delete("acl.role.delete", "/v1/acl/role").segment(id);
        self.acl_remove(request.write(options)).await
    }
}
