//! Policies of the double, the built-in ones among them.

use serde_json::{Map, Value, json};

use super::token;
use crate::testing::{
    acl::Rules,
    state::{
        Refused, Seen, State,
        format::content_hash,
        names::{MANAGEMENT, NAME_RULE, check_id, is_name},
        tables::{Policy, PolicyBody, Role, RoleBody, TemplatedPolicy},
    },
};

/// The rules of Consul's own policy.
pub(super) fn management_rules(old: bool) -> String {
    let named = |kind: &str| format!("{kind}_prefix \"\" {{\n\tpolicy = \"write\"\n}}\n");
    let mut text = "\nacl = \"write\"\n".to_owned();
    for kind in ["agent", "event", "key"] {
        text.push_str(&named(kind));
    }
    text.push_str("keyring = \"write\"\n");
    text.push_str(&named("node"));
    text.push_str("operator = \"write\"\n");
    if !old {
        text.push_str("mesh = \"write\"\npeering = \"write\"\n");
    }
    text.push_str(&named("query"));
    text.push_str("service_prefix \"\" {\n\tpolicy = \"write\"\n\tintentions = \"write\"\n}\n");
    text.push_str(&named("session"));
    text
}

fn refused(what: &str, problem: impl std::fmt::Display) -> Refused {
    Refused::new(500, format!("Invalid {what}: {problem}"))
}

impl State {
    fn policy_json(id: &str, policy: &Policy, rules: bool) -> Value {
        let mut fields = Map::new();
        fields.insert("ID".into(), json!(id));
        fields.insert("Name".into(), json!(policy.name));
        fields.insert("Description".into(), json!(policy.description));
        if rules {
            fields.insert("Rules".into(), json!(policy.text));
        }
        if !policy.datacenters.is_empty() {
            fields.insert("Datacenters".into(), json!(policy.datacenters));
        } else if !rules {
            fields.insert("Datacenters".into(), Value::Null);
        }
        let content = (&policy.name, &policy.description, &policy.text, &policy.datacenters);
        fields.insert("Hash".into(), json!(content_hash(&content)));
        fields.insert("CreateIndex".into(), json!(policy.stamp.created));
        fields.insert("ModifyIndex".into(), json!(policy.stamp.modified));
        Value::Object(fields)
    }

    /// Makes a policy, or changes the one with this id.
    pub(in crate::testing) fn acl_policy_set(
        &mut self,
        id: Option<&str>,
        body: PolicyBody,
    ) -> Result<Value, Refused> {
        if body.name.is_empty() {
            return Err(refused("Policy", "no Name is set"));
        }
        if !is_name(&body.name) {
            return Err(refused("Policy", format!("invalid Name. {}", self.name_rule())));
        }
        let old = match id {
            None => None,
            Some(id) => {
                check_id("policy", id)?;
                let found = self.acl.policies.get(id).cloned();
                Some(found.ok_or_else(|| Refused::new(500, format!("cannot find policy {id}")))?)
            }
        };
        let taken = self
            .acl
            .policies
            .iter()
            .any(|(other, policy)| policy.name == body.name && id.is_none_or(|id| id != other));
        if taken {
            let name = &body.name;
            return Err(refused("Policy", format!("A Policy with Name {name:?} already exists")));
        }
        if id == Some(MANAGEMENT) && old.as_ref().is_some_and(|old| old.text != body.rules) {
            let text =
                "Changing the Rules for the builtin global-management policy is not permitted";
            return Err(Refused::new(500, text));
        }
        let rules = Rules::parse(&body.rules).map_err(|error| Refused::new(500, error))?;
        let stamp = self.stamp(old.map(|old| old.stamp), |indexes| &mut indexes.policies);
        let policy = Policy {
            name: body.name,
            description: body.description,
            text: body.rules,
            rules,
            datacenters: body.datacenters,
            stamp,
        };
        let id = id.map_or_else(|| self.uuid(), str::to_owned);
        let answer = Self::policy_json(&id, &policy, true);
        self.acl.policies.insert(id, policy);
        Ok(answer)
    }

    pub(in crate::testing) fn acl_policy(
        &self,
        id: &str,
    ) -> Result<(Option<Value>, Seen), Refused> {
        check_id("policy", id)?;
        let found = self.acl.policies.get(id).map(|policy| Self::policy_json(id, policy, true));
        Ok((found, Seen::by_index(self.acl.indexes.policies)))
    }

    pub(in crate::testing) fn acl_policy_by_name(&self, name: &str) -> (Option<Value>, Seen) {
        let found = self.acl.policies.iter().find(|(_, policy)| policy.name == name);
        let found = found.map(|(id, policy)| Self::policy_json(id, policy, true));
        (found, Seen::by_index(self.acl.indexes.policies))
    }

    pub(in crate::testing) fn acl_policies(&self) -> (Value, Seen) {
        let list = self.acl.policies.iter();
        let list = list.map(|(id, policy)| Self::policy_json(id, policy, false)).collect();
        (list, Seen::by_index(self.acl.indexes.policies))
    }

    /// Deletes a policy. What links to it silently loses the link.
    pub(in crate::testing) fn acl_policy_delete(&mut self, id: &str) -> Result<Value, Refused> {
        check_id("policy", id)?;
        if id == MANAGEMENT {
            let text = "Delete operation not permitted on the builtin global-management policy";
            return Err(Refused::new(500, text));
        }
        if self.acl.policies.remove(id).is_none() {
            return self.acl_nothing_to_delete("policy");
        }
        self.stamp(None, |indexes| &mut indexes.policies);
        Ok(Value::Bool(true))
    }

    pub(super) fn role_json(&self, id: &str, role: &Role) -> Value {
        let mut fields = Map::new();
        fields.insert("ID".into(), json!(id));
        fields.insert("Name".into(), json!(role.name));
        fields.insert("Description".into(), json!(role.description));
        token::links(&mut fields, "Policies", self.policy_links(&role.policies));
        token::list(&mut fields, "ServiceIdentities", &role.service_identities);
        token::list(&mut fields, "NodeIdentities", &role.node_identities);
        let templated = role.templated_policies.iter().map(TemplatedPolicy::json).collect();
        token::links(&mut fields, "TemplatedPolicies", templated);
        let content = (
            (&role.name, &role.description, &role.policies),
            (&role.service_identities, &role.node_identities, &role.templated_policies),
        );
        fields.insert("Hash".into(), json!(content_hash(&content)));
        fields.insert("CreateIndex".into(), json!(role.stamp.created));
        fields.insert("ModifyIndex".into(), json!(role.stamp.modified));
        Value::Object(fields)
    }

    /// Makes a role, or changes the one with this id.
    pub(in crate::testing) fn acl_role_set(
        &mut self,
        id: Option<&str>,
        body: RoleBody,
    ) -> Result<Value, Refused> {
        if body.name.is_empty() {
            return Err(refused("Role", "no Name is set"));
        }
        if !is_name(&body.name) {
            return Err(refused("Role", format!("invalid Name. {NAME_RULE}")));
        }
        let old = match id {
            None => None,
            Some(id) => {
                check_id("role", id)?;
                let found = self.acl.roles.get(id).map(|role| role.stamp);
                Some(found.ok_or_else(|| Refused::new(500, format!("cannot find role {id}")))?)
            }
        };
        let taken = self
            .acl
            .roles
            .iter()
            .any(|(other, role)| role.name == body.name && id.is_none_or(|id| id != other));
        if taken {
            let name = &body.name;
            return Err(refused("Role", format!("A Role with Name {name:?} already exists")));
        }
        let policies = self.policy_ids(&body.policies)?;
        let old_server = self.is_1_8();
        token::check_identities(
            "role",
            old_server,
            &body.service_identities,
            &body.node_identities,
            false,
        )?;
        let templated = self.templated("role", body.templated_policies)?;
        let stamp = self.stamp(old, |indexes| &mut indexes.roles);
        let role = Role {
            name: body.name,
            description: body.description,
            policies,
            service_identities: token::distinct(body.service_identities),
            node_identities: token::distinct(body.node_identities),
            templated_policies: templated,
            stamp,
        };
        let id = id.map_or_else(|| self.uuid(), str::to_owned);
        let answer = self.role_json(&id, &role);
        self.acl.roles.insert(id, role);
        Ok(answer)
    }

    pub(in crate::testing) fn acl_role(&self, id: &str) -> Result<(Option<Value>, Seen), Refused> {
        check_id("role", id)?;
        let found = self.acl.roles.get(id).map(|role| self.role_json(id, role));
        Ok((found, Seen::by_index(self.acl.indexes.roles)))
    }

    pub(in crate::testing) fn acl_role_by_name(&self, name: &str) -> (Option<Value>, Seen) {
        let found = self.acl.roles.iter().find(|(_, role)| role.name == name);
        (found.map(|(id, role)| self.role_json(id, role)), Seen::by_index(self.acl.indexes.roles))
    }

    pub(in crate::testing) fn acl_roles(&self) -> (Value, Seen) {
        let list = self.acl.roles.iter().map(|(id, role)| self.role_json(id, role)).collect();
        (list, Seen::by_index(self.acl.indexes.roles))
    }

    pub(in crate::testing) fn acl_role_delete(&mut self, id: &str) -> Result<Value, Refused> {
        check_id("role", id)?;
        if self.acl.roles.remove(id).is_none() {
            return self.acl_nothing_to_delete("role");
        }
        self.stamp(None, |indexes| &mut indexes.roles);
        Ok(Value::Bool(true))
    }
}

/// The rules of the policy that only reads, which servers since 1.14 bring along.
pub(super) fn read_only_rules() -> String {
    let prefix =
        |kind: &str, more: &str| format!("\n{kind}_prefix \"\" {{\n\tpolicy = \"read\"\n{more}}}");
    let intentions = "\tintentions = \"read\"\n";
    [
        "\nacl = \"read\"".to_owned(),
        prefix("agent", ""),
        prefix("event", ""),
        prefix("identity", intentions),
        prefix("key", ""),
        "\nkeyring = \"read\"".to_owned(),
        prefix("node", ""),
        "\noperator = \"read\"\nmesh = \"read\"\npeering = \"read\"".to_owned(),
        prefix("query", ""),
        prefix("service", intentions),
        prefix("session", ""),
    ]
    .concat()
}
