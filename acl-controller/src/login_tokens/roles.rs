//! The ACL roles of clients and gateways with their policies, in upstream's names.

use consul_watch::types::{AclLink, AclPolicy, AclRole};

use super::LoginTokens;
use crate::{
    Action, Change, Error, Object, Result, Writer, consul::is_taken, rules, tenancy::ensure_policy,
};

pub(super) const CLIENT_ROLE: &str = "consul-ecs-client-role";
pub(super) const API_GATEWAY_ROLE: &str = "consul-ecs-api-gateway-role";
pub(super) const MESH_GATEWAY_ROLE: &str = "consul-ecs-mesh-gateway-role";
pub(super) const TERMINATING_GATEWAY_ROLE: &str = "consul-ecs-terminating-gateway-role";
const CLIENT_POLICY: &str = "consul-ecs-client-policy";
const API_GATEWAY_POLICY: &str = "consul-ecs-api-gateway-policy";
const MESH_GATEWAY_POLICY: &str = "consul-ecs-mesh-gateway-policy";

impl LoginTokens {
    pub(super) async fn ensure_client_role(&self, writer: &Writer) -> Result<()> {
        let rules = rules::client(self.tenancy.partition());
        // The policy first: Consul refuses a role that links a missing one.
        self.ensure_own_policy(writer, CLIENT_POLICY, "Consul Client Token Policy for ECS", rules)
            .await?;
        let description = "Consul Client Token Role for ECS";
        self.ensure_role(writer, CLIENT_ROLE, description, Some(CLIENT_POLICY)).await
    }

    pub(super) async fn ensure_gateway_roles(&self, writer: &Writer) -> Result<()> {
        let rules = rules::api_gateway(self.tenancy.partition().is_some());
        self.ensure_own_policy(writer, API_GATEWAY_POLICY, "API Gateway token Policy", rules)
            .await?;
        let description = "API Gateway Role for ECS";
        self.ensure_role(writer, API_GATEWAY_ROLE, description, Some(API_GATEWAY_POLICY)).await?;
        let rules = rules::mesh_gateway(self.tenancy.partition());
        self.ensure_own_policy(writer, MESH_GATEWAY_POLICY, "Mesh Gateway token Policy", rules)
            .await?;
        let description = "Mesh Gateway Role for ECS";
        self.ensure_role(writer, MESH_GATEWAY_ROLE, description, Some(MESH_GATEWAY_POLICY)).await?;
        let description = "Terminating Gateway Role for ECS";
        self.ensure_role(writer, TERMINATING_GATEWAY_ROLE, description, None).await
    }

    async fn ensure_own_policy(
        &self,
        writer: &Writer,
        name: &str,
        description: &str,
        rules: String,
    ) -> Result<()> {
        let mut policy = AclPolicy::new(name, rules);
        description.clone_into(&mut policy.description);
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        ensure_policy(self.consul(), writer, &policy, &read, &write).await
    }

    /// Creates a role, or links its policy if it has none at all.
    pub(super) async fn ensure_role(
        &self,
        writer: &Writer,
        name: &str,
        description: &str,
        policy: Option<&str>,
    ) -> Result<()> {
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        // A second round if another writer creates it meanwhile.
        for _ in 0..2 {
            let found = self.consul.acl_role_by_name(name, &read).await;
            let found = found.map_err(Error::consul(format!("reading role {name}")))?.value;
            let (action, mut role) = match found {
                None => (Action::Create, AclRole::new(name)),
                // A role with other policies was changed by an operator, and stays so.
                Some(role) if role.policies.is_empty() && policy.is_some() => {
                    (Action::Update, role)
                }
                Some(_) => return Ok(()),
            };
            role.policies.extend(policy.map(AclLink::name));
            if action == Action::Create {
                description.clone_into(&mut role.description);
            }
            let done = writer.write(Change::new(action, Object::Role, name), async {
                let done = match action {
                    Action::Create => self.consul.acl_role_create(&role, &write).await,
                    _ => self.consul.acl_role_update(&role, &write).await,
                };
                done.map_err(Error::consul(format!("upserting role {name}")))
            });
            match done.await {
                Err(Error::Consul { source, .. }) if is_taken(&source) => {}
                other => return other.map(drop),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use consul_watch::{
        QueryOptions,
        testing::{DefaultPolicy, TestConsul},
    };

    use super::*;
    use crate::{LoginTokenSettings, testing::MemoryTasks};

    /// Case ACL40: a role cannot be created before its policy; the next full attempt creates both.
    #[tokio::test]
    async fn a_role_without_its_policy_is_refused_and_made_by_the_next_full_try() {
        let consul =
            TestConsul::builder().acls(DefaultPolicy::Deny).management_token("root").build();
        let client = Arc::new(consul.client());
        let settings = LoginTokenSettings::new("arn:aws:ecs:us-east-1:1:cluster/c", "10.0.0.1");
        let tasks = Arc::new(MemoryTasks::new());
        let tokens = LoginTokens::new(Arc::clone(&client) as _, tasks, settings).unwrap();
        let writer = Writer::new();
        let role = tokens.ensure_role(&writer, API_GATEWAY_ROLE, "d", Some(API_GATEWAY_POLICY));
        let error = consul_watch::error_chain(&role.await.unwrap_err());
        assert!(error.contains("No such ACL policy with name"), "{error}");
        assert!(writer.into_changes().is_empty());
        tokens.ensure_gateway_roles(&Writer::new()).await.unwrap();
        let roles = client.acl_roles(&QueryOptions::default()).await.unwrap().value;
        let named: Vec<&AclRole> =
            roles.iter().filter(|role| role.name == API_GATEWAY_ROLE).collect();
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].policies[0].name, API_GATEWAY_POLICY);
    }
}
