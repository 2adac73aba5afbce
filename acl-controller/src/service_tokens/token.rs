//! The token of each service in Consul, and its links.

use consul_watch::types::{AclLink, AclToken, AclTokenRequest, ServiceIdentity};

use super::{ServiceTokens, listing::ServiceState};
use crate::{
    Action, Change, Error, Object, Result, Writer,
    consul::{is_secret_taken, is_taken},
    service_name::{ServiceName, Subject},
    tenancy::CROSS_NAMESPACE_READ,
    token_ids::TokenIds,
};

impl ServiceTokens {
    pub(super) async fn read_token(&self, accessor: &str) -> Result<Option<AclToken>> {
        let found = self.consul.acl_token(accessor, &self.tenancy.home()).await;
        let found = found.map_err(Error::consul(format!("reading token {accessor}")))?;
        Ok(found.value)
    }

    /// Returns the policies of a token; none of its own where its rights come from an identity.
    fn links(&self, policy: Option<&str>) -> Vec<AclLink> {
        let mut links: Vec<AclLink> = policy.map(AclLink::name).into_iter().collect();
        if self.with_partitions() {
            links.push(AclLink::name(CROSS_NAMESPACE_READ));
        }
        links
    }

    /// Creates the token with these ids, or restores its links; returns `false` if Consul refuses
    /// the ids.
    pub(super) async fn ensure_token(
        &self,
        writer: &Writer,
        service: &ServiceName,
        ids: &TokenIds,
        policy: Option<&str>,
    ) -> Result<bool> {
        match self.read_token(&ids.accessor).await? {
            Some(token) if self.is_of(service, &token.description) => {
                tracing::debug!(service = %service, "token already exists; skipping token creation");
                self.ensure_links(writer, service, &token, policy).await?;
                return Ok(true);
            }
            // The accessor id belongs to somebody else's token; the caller generates others.
            Some(_) => return Ok(false),
            None => {}
        }
        let cluster = &self.settings.cluster;
        let mut request = AclTokenRequest::new(service.description(Subject::Token, cluster));
        request.accessor_id = Some(ids.accessor.clone());
        request.secret_id = Some(ids.secret.clone());
        request.policies = self.links(policy);
        if policy.is_none() {
            request.service_identities.push(ServiceIdentity::new(service.name.as_str()));
        }
        let change = Change::new(Action::Create, Object::Token, token_name(service, &ids.accessor));
        let write = self.tenancy.home_write();
        let made = writer.write(change, async {
            self.consul
                .acl_token_create(&request, &write)
                .await
                .map_err(Error::consul(format!("creating token for service {service}")))
        });
        match made.await {
            Ok(_) => Ok(true),
            Err(Error::Consul { source, .. }) if is_secret_taken(&source) => Ok(false),
            Err(Error::Consul { source, .. }) if is_taken(&source) => {
                // Another writer was faster; if it was a controller, with the same ids.
                let token = self.read_token(&ids.accessor).await?;
                Ok(token.is_some_and(|token| self.is_of(service, &token.description)))
            }
            Err(error) => Err(error),
        }
    }

    /// Links the policies that a token lacks, since deleting a policy deletes the links to it.
    pub(super) async fn ensure_links(
        &self,
        writer: &Writer,
        service: &ServiceName,
        token: &AclToken,
        policy: Option<&str>,
    ) -> Result<()> {
        let missing: Vec<AclLink> = self
            .links(policy)
            .into_iter()
            .filter(|link| token.policies.iter().all(|have| have.name != link.name))
            .collect();
        let identity = policy.is_none()
            && token.service_identities.iter().all(|have| have.service_name != service.name);
        if missing.is_empty() && !identity {
            return Ok(());
        }
        // From the token as it is: an update replaces all members, and others' links must stay.
        let mut request = AclTokenRequest::from(token);
        request.policies.extend(missing);
        if identity {
            request.service_identities.push(ServiceIdentity::new(service.name.as_str()));
        }
        let change =
            Change::new(Action::Update, Object::Token, token_name(service, &token.accessor_id));
        let write = self.tenancy.home_write();
        let updated = writer.write(change, async {
            self.consul
                .acl_token_update(&token.accessor_id, &request, &write)
                .await
                .map_err(Error::consul(format!("updating token for service {service}")))
        });
        updated.await.map(drop)
    }

    /// Records, in a dry run that would write new ids, the token that would follow.
    pub(super) async fn plan_token(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
    ) -> Result<()> {
        if state.tokens.is_empty() {
            let change = Change::new(Action::Create, Object::Token, format!("{service} (new ids)"));
            writer.write(change, async { Ok(()) }).await?;
        }
        Ok(())
    }
}

/// Returns the name of a token in a change.
pub(super) fn token_name(service: &ServiceName, accessor: &str) -> String {
    format!("{service} ({accessor})")
}
