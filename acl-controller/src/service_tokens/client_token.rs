use consul_watch::{
    client::AclTokenFilter,
    types::{AclLink, AclPolicy, AclToken, AclTokenEntry, AclTokenRequest},
};

use super::{ServiceTokens, secret::secret_of};
use crate::{
    Action, Change, Error, Object, Result, Writer,
    consul::is_taken,
    rules,
    secret_store::Replaced,
    tenancy::ensure_policy,
    token_ids::{Said, TokenIds},
};

const DESCRIPTION: &str = "ECS Consul client Token";
const ATTEMPTS: usize = 5;

impl ServiceTokens {
    fn client_policy(&self) -> String {
        format!("{}-consul-client-policy", self.settings.secret_prefix)
    }

    /// Makes the token that all Consul clients share, unless its secret holds one that Consul
    /// knows.
    ///
    /// Deviation: the ids are written into the secret before the token is made, as for services,
    /// so that a crash leaves no token behind that nobody knows.
    pub(super) async fn ensure_client_token(&self, writer: &Writer) -> Result<()> {
        let Some(name) = self.settings.client_secret.clone() else { return Ok(()) };
        let made = self.find_or_make_client_token(writer, &name).await;
        let accessor = made.map_err(|error| Error::step("Consul client token", error))?;
        self.memory().client_accessor = accessor;
        Ok(())
    }

    async fn find_or_make_client_token(
        &self,
        writer: &Writer,
        name: &str,
    ) -> Result<Option<String>> {
        // Whether another controller has put its ids in while this one was about to.
        let mut lost = false;
        for _ in 0..ATTEMPTS {
            let stored = self.read_secret(name).await?;
            let said = Said::read(stored.value.as_ref());
            let ids = match said {
                Said::Ids(ids) if self.is_client_token(&ids).await? => {
                    return Ok(Some(ids.accessor));
                }
                Said::Ids(ids) if lost => Some(ids),
                Said::Ids(_) | Said::Nothing | Said::Foreign(_) => {
                    match (self.existing_client_token().await?, said) {
                        (Some(found), _) => {
                            let written =
                                self.write_secret(writer, name, &stored.version, &found).await?;
                            if matches!(written, Some(Replaced::Conflict)) {
                                lost = true;
                                continue;
                            }
                            return Ok(Some(found.accessor));
                        }
                        (None, Said::Foreign(reason)) => {
                            return Err(Error::input(format!(
                                "unmarshalling Consul client secret value JSON: {name}: {reason}; to let the controller fill it, make it {{}}"
                            )));
                        }
                        (None, _) => None,
                    }
                }
            };
            self.ensure_client_policy(writer).await?;
            let held = ids.is_some();
            let ids = ids.unwrap_or_else(TokenIds::generate);
            let written = if held {
                None
            } else {
                self.write_secret(writer, name, &stored.version, &ids).await?
            };
            if matches!(written, Some(Replaced::Conflict)) {
                lost = true;
                continue;
            }
            self.create_client_token(writer, &ids).await?;
            if writer.is_dry_run() || self.is_in_secret(name, &ids).await? {
                return Ok(Some(ids.accessor).filter(|_| !writer.is_dry_run()));
            }
            self.take_back(&ids).await?;
            lost = true;
        }
        Err(Error::Other {
            operation: format!("updating the secret {name}"),
            retryable: true,
            retry_after: None,
            source: "somebody else keeps changing it".into(),
        })
    }

    /// Whether Consul has a token with these ids. What it may do is not looked at.
    async fn is_client_token(&self, ids: &TokenIds) -> Result<bool> {
        match self.read_token(&ids.accessor).await? {
            Some(token) => Ok(token.secret_id.as_ref().is_none_or(|secret| ids.has_secret(secret))),
            None => Ok(false),
        }
    }

    async fn is_in_secret(&self, name: &str, ids: &TokenIds) -> Result<bool> {
        let stored = self.read_secret(name).await?;
        let said = Said::read(stored.value.as_ref());
        Ok(matches!(said, Said::Ids(found) if found.accessor == ids.accessor))
    }

    /// A token that an earlier run has made, whatever became of the secret.
    async fn existing_client_token(&self) -> Result<Option<TokenIds>> {
        let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &self.tenancy.home()).await;
        let mut tokens = tokens.map_err(Error::consul("listing tokens"))?.value;
        tokens.retain(|token| self.is_clients(token));
        tokens.sort_by_key(|token| (token.create_index, token.accessor_id.clone()));
        let Some(oldest) = tokens.first() else { return Ok(None) };
        let token: Option<AclToken> = self.read_token(&oldest.accessor_id).await?;
        let Some(token) = token else { return Ok(None) };
        let secret = secret_of(&token)?.clone();
        Ok(Some(TokenIds { accessor: token.accessor_id, secret }))
    }

    /// Whether a token is this cluster's clients': the policy's name begins with its prefix.
    fn is_clients(&self, token: &AclTokenEntry) -> bool {
        let policy = self.client_policy();
        token.description == DESCRIPTION && token.policies.iter().any(|link| link.name == policy)
    }

    async fn ensure_client_policy(&self, writer: &Writer) -> Result<()> {
        let rules = rules::client(self.tenancy.partition());
        let mut policy = AclPolicy::new(self.client_policy(), rules);
        policy.description = "Consul Client Token Policy for ECS".into();
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        ensure_policy(self.consul(), writer, &policy, &read, &write).await
    }

    async fn create_client_token(&self, writer: &Writer, ids: &TokenIds) -> Result<()> {
        let mut request = AclTokenRequest::new(DESCRIPTION);
        request.accessor_id = Some(ids.accessor.clone());
        request.secret_id = Some(ids.secret.clone());
        request.policies.push(AclLink::name(self.client_policy()));
        let shown = if writer.is_dry_run() { "new ids" } else { &ids.accessor };
        let change =
            Change::new(Action::Create, Object::Token, format!("Consul clients ({shown})"));
        let write = self.tenancy.home_write();
        let made = writer.write(change, async {
            match self.consul.acl_token_create(&request, &write).await {
                Err(error) if !is_taken(&error) => {
                    Err(Error::consul("creating Consul client token")(error))
                }
                _ => Ok(()),
            }
        });
        made.await.map(drop)
    }

    /// Deletes the token that was made for ids which the secret does not hold any more.
    async fn take_back(&self, ids: &TokenIds) -> Result<()> {
        let gone = self.consul.acl_token_delete(&ids.accessor, &self.tenancy.home_write()).await;
        gone.map_err(Error::consul(format!("deleting token {}", ids.accessor)))
    }

    /// Removes the clients' tokens and their policy.
    pub(super) async fn remove_client_token(&self, writer: &Writer) -> Result<()> {
        if self.settings.client_secret.is_none() {
            return Ok(());
        }
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &read).await;
        for token in tokens.map_err(Error::consul("listing tokens"))?.value {
            if self.is_clients(&token) {
                let id = &token.accessor_id;
                let change =
                    Change::new(Action::Delete, Object::Token, format!("Consul clients ({id})"));
                let gone = writer.write(change, async {
                    let gone = self.consul.acl_token_delete(id, &write).await;
                    gone.map_err(Error::consul(format!("deleting token {id}")))
                });
                gone.await?;
            }
        }
        let name = self.client_policy();
        let policy = self.consul.acl_policy_by_name(&name, &read).await;
        if let Some(policy) = policy.map_err(Error::consul(format!("reading policy {name}")))?.value
        {
            let gone = writer.write(Change::new(Action::Delete, Object::Policy, &name), async {
                let gone = self.consul.acl_policy_delete(&policy.id, &write).await;
                gone.map_err(Error::consul(format!("deleting policy {name}")))
            });
            gone.await?;
        }
        self.memory().client_accessor = None;
        Ok(())
    }
}
