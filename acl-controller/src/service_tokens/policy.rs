//! The policy of each service: created, found, and its rules repaired.

use consul_watch::types::AclPolicy;
use sha2::{Digest as _, Sha256};

use super::{
    ServiceTokens,
    listing::{Located, ServiceState},
};
use crate::{
    Action, Change, Error, Object, Result, Writer,
    consul::is_taken,
    rules,
    service_name::{ServiceName, Subject},
};

impl ServiceTokens {
    /// Creates the policy of a service if needed, and returns its name.
    pub(super) async fn ensure_service_policy(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
        check: bool,
    ) -> Result<String> {
        if let Some(policy) = state.policies.first() {
            if check {
                self.repair_rules(writer, service, policy).await?;
            }
            return Ok(policy.object.name.clone());
        }
        let name = service.policy_name();
        for name in [name.clone(), self.second_name(&name)] {
            if self.policy_is_ours(service, &name).await?.is_none()
                && !self.create_policy(writer, service, &name).await?
            {
                // Another writer was faster.
                tracing::debug!(policy = name, "the policy has been made meanwhile");
            }
            // A dry run has created nothing.
            match self.policy_is_ours(service, &name).await? {
                Some(true) => return Ok(name),
                None if writer.is_dry_run() => return Ok(name),
                _ => {}
            }
        }
        Err(Error::input(format!(
            "policy {name} belongs to somebody else, and so does {}",
            self.second_name(&name)
        )))
    }

    /// Returns the name that is used if the first one belongs to another cluster or a person.
    fn second_name(&self, first: &str) -> String {
        // Derived from the cluster, so that every controller of it finds the same name.
        let digest = Sha256::digest(self.settings.cluster.as_bytes());
        let number =
            digest.iter().take(4).fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        format!("{first}-{number:08x}")
    }

    /// Returns `true` if a policy is the service's; `None` if there is none.
    async fn policy_is_ours(&self, service: &ServiceName, name: &str) -> Result<Option<bool>> {
        let found = self.consul.acl_policy_by_name(name, &self.tenancy.home()).await;
        let found = found.map_err(Error::consul(format!("reading policy {name}")))?.value;
        Ok(found.map(|policy| {
            self.read_description(Subject::Policy, &policy.description).as_ref() == Some(service)
        }))
    }

    /// Creates a policy; returns `false` if another writer was faster.
    async fn create_policy(
        &self,
        writer: &Writer,
        service: &ServiceName,
        name: &str,
    ) -> Result<bool> {
        let mut policy = AclPolicy::new(name, rules::service(service));
        policy.description = service.description(Subject::Policy, &self.settings.cluster);
        let change = Change::new(Action::Create, Object::Policy, name);
        let write = self.tenancy.home_write();
        let made = writer.write(change, async {
            self.consul
                .acl_policy_create(&policy, &write)
                .await
                .map_err(Error::consul(format!("creating policy {name}")))
        });
        match made.await {
            Ok(made) => {
                if let Some(made) = made {
                    self.memory().rules.insert(made.id, made.hash);
                }
                Ok(true)
            }
            Err(Error::Consul { source, .. }) if is_taken(&source) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Restores the rules of a policy if somebody has changed them.
    async fn repair_rules(
        &self,
        writer: &Writer,
        service: &ServiceName,
        found: &Located<AclPolicy>,
    ) -> Result<()> {
        let listed = &found.object;
        // The hash in the list spares reading a policy that has not changed since it was checked.
        if !listed.hash.is_empty() && self.memory().rules.get(&listed.id) == Some(&listed.hash) {
            return Ok(());
        }
        let name = &listed.name;
        let read = self.tenancy.read(&found.namespace);
        let policy = self.consul.acl_policy_by_name(name, &read).await;
        let policy = policy.map_err(Error::consul(format!("reading policy {name}")))?.value;
        let Some(mut policy) = policy.filter(|policy| policy.id == listed.id) else {
            // It is being replaced right now; the next pass sees the result.
            return Ok(());
        };
        let expected = rules::service(service);
        // Limited to some datacenters, the policy would grant nothing in the others.
        if policy.rules != expected || !policy.datacenters.is_empty() {
            policy.rules = expected;
            policy.datacenters = Vec::new();
            let change = Change::new(Action::Update, Object::Policy, name);
            let write = self.tenancy.write(&found.namespace);
            let updated = writer.write(change, async {
                self.consul
                    .acl_policy_update(&policy, &write)
                    .await
                    .map_err(Error::consul(format!("updating policy {name}")))
            });
            match updated.await? {
                Some(updated) => policy = updated,
                None => return Ok(()),
            }
        }
        self.memory().rules.insert(policy.id, policy.hash);
        Ok(())
    }
}
