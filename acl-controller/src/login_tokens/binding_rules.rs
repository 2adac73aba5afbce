//! The binding rules that map a login's IAM role tags to a service identity or a gateway's role.

use consul_watch::types::{AclBindingRule, BindType};

use super::{
    LoginTokens, Registration,
    auth_method::{CLIENT_METHOD, SERVICE_METHOD},
    roles::{API_GATEWAY_ROLE, CLIENT_ROLE, MESH_GATEWAY_ROLE, TERMINATING_GATEWAY_ROLE},
};
use crate::{Action, Change, Error, Object, Result, Writer};

impl LoginTokens {
    /// Returns the binding rules that the registration needs.
    fn binding_rules(&self) -> Vec<AclBindingRule> {
        let mut service = AclBindingRule::new(
            SERVICE_METHOD,
            BindType::Service,
            "${entity_tags.consul.hashicorp.com.service-name}",
        );
        service.description = "Bind a service identity from IAM role tag for ECS".into();
        if self.settings.registration == Registration::Clients {
            let mut client = AclBindingRule::new(CLIENT_METHOD, BindType::Role, CLIENT_ROLE);
            client.description = "Bind a policy for Consul clients on ECS".into();
            return vec![client, service];
        }
        let gateway = |kind: &str, plural: &str, role: &str| {
            let mut rule = AclBindingRule::new(SERVICE_METHOD, BindType::Role, role);
            rule.description =
                format!("Bind a Consul role from IAM role tag for ECS based {plural}");
            rule.selector =
                format!("entity_tags[\"consul.hashicorp.com.gateway-kind\"] == \"{kind}\"");
            rule
        };
        vec![
            service,
            gateway("api-gateway", "API gateways", API_GATEWAY_ROLE),
            gateway("terminating-gateway", "Terminating gateways", TERMINATING_GATEWAY_ROLE),
            gateway("mesh-gateway", "mesh gateways", MESH_GATEWAY_ROLE),
        ]
    }

    /// Creates the binding rules, or corrects them. Rules of others stay untouched.
    pub(super) async fn ensure_binding_rules(&self, writer: &Writer) -> Result<()> {
        for wanted in self.binding_rules() {
            self.ensure_binding_rule(writer, &wanted).await?;
        }
        Ok(())
    }

    async fn ensure_binding_rule(&self, writer: &Writer, wanted: &AclBindingRule) -> Result<()> {
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        let found = self.consul.acl_binding_rules(Some(&wanted.auth_method), &read).await;
        let mut found = found.map_err(Error::consul("listing binding rules"))?.value;
        // Rules have no names: bind name and description identify ours.
        found.retain(|rule| {
            rule.bind_name == wanted.bind_name && rule.description == wanted.description
        });
        found.sort_by_key(|rule| (rule.create_index, rule.id.clone()));
        let mut found = found.into_iter();
        let name = &wanted.description;
        let refused = |error| Error::consul(format!("upserting binding rule {name:?}"))(error);
        match found.next() {
            None => {
                let change = Change::new(Action::Create, Object::BindingRule, name);
                let made = writer.write(change, async {
                    self.consul.acl_binding_rule_create(wanted, &write).await.map_err(refused)
                });
                made.await?;
            }
            Some(first)
                if first.selector == wanted.selector && first.bind_type == wanted.bind_type => {}
            Some(mut first) => {
                first.selector.clone_from(&wanted.selector);
                first.bind_type.clone_from(&wanted.bind_type);
                let change = Change::new(Action::Update, Object::BindingRule, name);
                let updated = writer.write(change, async {
                    self.consul.acl_binding_rule_update(&first, &write).await.map_err(refused)
                });
                updated.await?;
            }
        }
        // Two controllers that started together have each created one.
        for twin in found {
            let twin_name = format!("{name} ({})", twin.id);
            let change = Change::new(Action::Delete, Object::BindingRule, twin_name);
            let gone = writer.write(change, async {
                let gone = self.consul.acl_binding_rule_delete(&twin.id, &write).await;
                gone.map_err(Error::consul(format!("deleting binding rule {}", twin.id)))
            });
            gone.await?;
        }
        Ok(())
    }
}
