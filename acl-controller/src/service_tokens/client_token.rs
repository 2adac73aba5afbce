//! The one token that all Consul clients of a cluster share, and its secret.

use std::collections::{BTreeSet, HashSet};

use consul_watch::{
    client::AclTokenFilter,
    types::{AclLink, AclPolicy, AclToken, AclTokenEntry, AclTokenRequest},
};

use super::{
    ServiceTokens,
    listing::{CLIENT_DESCRIPTION, ObservedState, is_for_clients},
    secret::secret_of,
};
use crate::{
    Action, Change, Error, Object, Result, Writer,
    consul::is_taken,
    rules,
    secret_store::{Replaced, StoredSecret},
    tenancy::ensure_policy,
    token_ids::{ParsedSecret, TokenIds},
};

/// Suffix of the clients' policy, after the cluster's prefix.
const POLICY: &str = "-consul-client-policy";
/// Attempts while other writers change the secret at the same time.
const ATTEMPTS: usize = 5;

/// Next step for the clients' secret.
enum Next {
    /// Keep it: it holds the ids of this token.
    Keep(Box<AclToken>),
    /// Write the ids of this token into it.
    Restore(Box<AclToken>),
    /// Create the token for the ids in it, which another controller wrote.
    Make(TokenIds),
    /// Write new ids into it.
    Fill,
}

impl ServiceTokens {
    fn client_policy(&self) -> String {
        format!("{}{POLICY}", self.settings.secret_prefix)
    }

    /// Creates the token that all Consul clients share, unless its secret holds one; restores its
    /// policy.
    ///
    /// Deviation: the ids are written into the secret before the token is created, as for services,
    /// so that a crash leaves no unknown token behind. Only a token that a controller created for
    /// clients is accepted, where upstream accepts any token that the secret names.
    pub(super) async fn ensure_client_token(&self, writer: &Writer) -> Result<()> {
        let Some(name) = self.settings.client_secret.clone() else { return Ok(()) };
        let made = self.find_or_make_client_token(writer, &name).await;
        let accessor = made.map_err(|error| Error::step("Consul client token", error))?;
        self.memory().client_accessor = accessor;
        Ok(())
    }

    /// Does the same in a pass, if lists show a need or `check` demands it.
    pub(super) async fn keep_client_token(
        &self,
        writer: &Writer,
        observed: &ObservedState,
        check: bool,
    ) -> Result<()> {
        let own = self.memory().client_accessor.clone();
        let is_sound = observed
            .clients
            .iter()
            .any(|token| Some(&token.accessor_id) == own.as_ref() && self.is_linked(token));
        if check || !is_sound {
            self.ensure_client_token(writer).await?;
        }
        self.remove_surplus_clients(writer, observed).await
    }

    async fn find_or_make_client_token(
        &self,
        writer: &Writer,
        name: &str,
    ) -> Result<Option<String>> {
        // `true` after another controller wrote its ids first.
        let mut lost = false;
        for _ in 0..ATTEMPTS {
            let stored = self.read_secret(name).await?;
            let next = self.next_client_ids(name, &stored, lost).await?;
            // After the secret is known to be usable, and before the token that links the policy.
            self.ensure_client_policy(writer).await?;
            let ids = match next {
                Next::Keep(token) => {
                    self.ensure_client_link(writer, &token).await?;
                    return Ok(Some(token.accessor_id));
                }
                Next::Restore(token) => {
                    self.ensure_client_link(writer, &token).await?;
                    let secret = secret_of(&token)?.clone();
                    let ids = TokenIds::of_token(token.accessor_id, secret);
                    match self.write_secret(writer, name, &stored.version, &ids).await? {
                        Some(Replaced::Conflict) => {
                            lost = true;
                            continue;
                        }
                        _ => return Ok(Some(ids.accessor)),
                    }
                }
                Next::Make(ids) => ids,
                Next::Fill => {
                    let ids = TokenIds::generate();
                    let written = self.write_secret(writer, name, &stored.version, &ids).await?;
                    if matches!(written, Some(Replaced::Conflict)) {
                        lost = true;
                        continue;
                    }
                    ids
                }
            };
            self.create_client_token(writer, &ids).await?;
            if writer.is_dry_run() {
                return Ok(None);
            }
            // Another controller may have replaced the ids between our write and the token's
            // creation.
            if self.is_in_secret(name, &ids).await? {
                return Ok(Some(ids.accessor));
            }
            // Deletes the token, whose ids the secret no longer holds.
            self.delete_client_token(writer, &ids.accessor).await?;
            lost = true;
        }
        Err(Error::Other {
            operation: format!("updating the secret {name}"),
            retryable: true,
            retry_after: None,
            source: "somebody else keeps changing it".into(),
        })
    }

    async fn next_client_ids(&self, name: &str, stored: &StoredSecret, lost: bool) -> Result<Next> {
        let parsed = ParsedSecret::read(stored.value.as_ref());
        if let ParsedSecret::Ids(ids) = &parsed {
            match self.read_token(&ids.accessor).await? {
                Some(token) if self.is_own_client(&token.description, &token.policies) => {
                    let holds_secret = ids.has_secret(secret_of(&token)?);
                    let token = Box::new(token);
                    return Ok(if holds_secret { Next::Keep(token) } else { Next::Restore(token) });
                }
                // Two clusters with one secret would take turns in replacing each other's token.
                Some(token) if token.description == CLIENT_DESCRIPTION => {
                    return Err(Error::input(format!(
                        "the secret {name} holds the token {} of another cluster's clients ({}); give each cluster a secret of its own",
                        token.accessor_id,
                        names(&token.policies)
                    )));
                }
                Some(token) => tracing::warn!(
                    secret = name,
                    token.accessor_id,
                    "the secret names a token that is not for Consul clients; it is replaced"
                ),
                // Ids without a token after a lost race are the winner's, whose token is about to
                // follow.
                None if lost => return Ok(Next::Make(ids.clone())),
                None => {}
            }
        }
        match (self.existing_client_token().await?, parsed) {
            (Some(token), _) => Ok(Next::Restore(Box::new(token))),
            (None, ParsedSecret::Foreign(reason)) => Err(Error::input(format!(
                "unmarshalling Consul client secret value JSON: {name}: {reason}; to let the controller fill it, make it {{}}"
            ))),
            (None, _) => Ok(Next::Fill),
        }
    }

    async fn is_in_secret(&self, name: &str, ids: &TokenIds) -> Result<bool> {
        let stored = self.read_secret(name).await?;
        let parsed = ParsedSecret::read(stored.value.as_ref());
        Ok(matches!(parsed, ParsedSecret::Ids(found) if found.accessor == ids.accessor))
    }

    /// Finds a token that this or an earlier run created, whatever became of the secret.
    async fn existing_client_token(&self) -> Result<Option<AclToken>> {
        let known = self.memory().client_accessor.clone();
        let mut tokens = self.client_tokens().await?;
        // Without its policy only the token that this run has seen is known as the cluster's.
        tokens.retain(|token| {
            self.is_linked(token)
                || (Some(&token.accessor_id) == known.as_ref()
                    && self.is_own_client(&token.description, &token.policies))
        });
        // The oldest, so that several controllers choose the same one.
        tokens.sort_by_key(|token| (token.create_index, token.accessor_id.clone()));
        match tokens.first() {
            Some(oldest) => self.read_token(&oldest.accessor_id).await,
            None => Ok(None),
        }
    }

    /// Lists the tokens of all clusters' clients.
    async fn client_tokens(&self) -> Result<Vec<AclTokenEntry>> {
        let tokens = self.consul.acl_tokens(&AclTokenFilter::default(), &self.tenancy.home()).await;
        let mut tokens = tokens.map_err(Error::consul("listing tokens"))?.value;
        tokens.retain(is_for_clients);
        Ok(tokens)
    }

    /// Returns `true` if a token of clients has this cluster's policy, whose name begins with its
    /// prefix.
    fn is_linked(&self, token: &AclTokenEntry) -> bool {
        let policy = self.client_policy();
        token.policies.iter().any(|link| link.name == policy)
    }

    /// Returns `true` if a token may be this cluster's clients': a controller created it, and it
    /// lacks the policy of any other cluster. Its own policy may have been deleted.
    fn is_own_client(&self, description: &str, policies: &[AclLink]) -> bool {
        let own = self.client_policy();
        let is_linked = policies.iter().any(|link| link.name == own);
        let others = policies.iter().any(|link| link.name.ends_with(POLICY));
        description == CLIENT_DESCRIPTION && (is_linked || !others)
    }

    /// Links the policy again, since deleting a policy deletes the links to it.
    async fn ensure_client_link(&self, writer: &Writer, token: &AclToken) -> Result<()> {
        let (id, policy) = (&token.accessor_id, self.client_policy());
        if token.policies.iter().any(|link| link.name == policy) {
            return Ok(());
        }
        let mut request = AclTokenRequest::from(token);
        request.policies.push(AclLink::name(policy));
        let change = Change::new(Action::Update, Object::Token, shown(id));
        let write = self.tenancy.home_write();
        let updated = writer.write(change, async {
            let updated = self.consul.acl_token_update(id, &request, &write).await;
            updated.map_err(Error::consul("updating Consul client token"))
        });
        updated.await.map(drop)
    }

    async fn ensure_client_policy(&self, writer: &Writer) -> Result<()> {
        let rules = rules::client(self.tenancy.partition());
        let mut policy = AclPolicy::new(self.client_policy(), rules);
        policy.description = "Consul Client Token Policy for ECS".into();
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        ensure_policy(self.consul(), writer, &policy, &read, &write).await
    }

    async fn create_client_token(&self, writer: &Writer, ids: &TokenIds) -> Result<()> {
        let mut request = AclTokenRequest::new(CLIENT_DESCRIPTION);
        request.accessor_id = Some(ids.accessor.clone());
        request.secret_id = Some(ids.secret.clone());
        request.policies.push(AclLink::name(self.client_policy()));
        let name = shown(if writer.is_dry_run() { "new ids" } else { &ids.accessor });
        let change = Change::new(Action::Create, Object::Token, name);
        let write = self.tenancy.home_write();
        let made = writer.write(change, async {
            // The same ids are taken only by a controller that read the same secret.
            match self.consul.acl_token_create(&request, &write).await {
                Err(error) if !is_taken(&error) => {
                    Err(Error::consul("creating Consul client token")(error))
                }
                _ => Ok(()),
            }
        });
        made.await.map(drop)
    }

    async fn delete_client_token(&self, writer: &Writer, id: &str) -> Result<()> {
        let write = self.tenancy.home_write();
        let gone = writer.write(Change::new(Action::Delete, Object::Token, shown(id)), async {
            let gone = self.consul.acl_token_delete(id, &write).await;
            gone.map_err(Error::consul(format!("deleting token {id}")))
        });
        gone.await.map(drop)
    }

    /// Deletes the clients' tokens beside the one in the secret, which a crash or a person may have
    /// left, once no task runs that may have got one.
    async fn remove_surplus_clients(
        &self,
        writer: &Writer,
        observed: &ObservedState,
    ) -> Result<()> {
        let unused: Vec<&str> = {
            let mut memory = self.memory();
            let Some(own) = memory.client_accessor.clone() else { return Ok(()) };
            // Without a sound token of its own, none of the others is known to be surplus.
            if !observed.accessors.contains(&own) || !observed.running.undescribed.is_empty() {
                return Ok(());
            }
            let running: HashSet<&String> = observed.running.services.values().flatten().collect();
            let others = observed
                .clients
                .iter()
                .filter(|token| token.accessor_id != own && self.is_linked(token))
                .map(|token| token.accessor_id.as_str());
            others
                .filter(|id| {
                    // Tasks that run when a surplus token is first seen may use it; later ones get
                    // the secret's.
                    let all = || running.iter().map(|&task| task.clone()).collect();
                    let tasks = memory.surplus.entry((*id).to_owned()).or_insert_with(all);
                    !tasks.iter().any(|task| running.contains(task))
                })
                .collect()
        };
        for id in unused {
            self.delete_client_token(writer, id).await?;
        }
        Ok(())
    }

    /// Removes the clients' tokens and their policy. A failure does not prevent the rest.
    pub(super) async fn remove_client_token(&self, writer: &Writer) -> Result<()> {
        let Some(secret) = &self.settings.client_secret else { return Ok(()) };
        let tokens = self.client_tokens().await?;
        let mut doomed: BTreeSet<String> = tokens
            .iter()
            .filter(|token| self.is_linked(token))
            .map(|token| token.accessor_id.clone())
            .collect();
        let mut errors = Vec::new();
        match self.client_token_of_secret(secret).await {
            Ok(named) => doomed.extend(named),
            Err(error) => errors.push(error),
        }
        for token in tokens.iter().filter(|token| token.policies.is_empty()) {
            if !doomed.contains(&token.accessor_id) {
                tracing::warn!(
                    token.accessor_id,
                    "a token of Consul clients without a policy stays: nothing says of which cluster"
                );
            }
        }
        for id in &doomed {
            errors.extend(self.delete_client_token(writer, id).await.err());
        }
        let (name, read, write) =
            (self.client_policy(), self.tenancy.home(), self.tenancy.home_write());
        let policy = self.consul.acl_policy_by_name(&name, &read).await;
        if let Some(policy) = policy.map_err(Error::consul(format!("reading policy {name}")))?.value
        {
            let gone = writer.write(Change::new(Action::Delete, Object::Policy, &name), async {
                let gone = self.consul.acl_policy_delete(&policy.id, &write).await;
                gone.map_err(Error::consul(format!("deleting policy {name}")))
            });
            errors.extend(gone.await.err());
        }
        self.memory().client_accessor = None;
        Error::several(errors).map_or(Ok(()), Err)
    }

    /// Returns the token that the clients' secret names, if it is theirs. The secret may be gone
    /// already.
    async fn client_token_of_secret(&self, name: &str) -> Result<Option<String>> {
        let stored = self.secrets.get(name).await;
        let stored =
            stored.map_err(|error| Error::step(format!("retrieving secret {name}"), error))?;
        let Some(ParsedSecret::Ids(ids)) =
            stored.map(|stored| ParsedSecret::read(stored.value.as_ref()))
        else {
            return Ok(None);
        };
        let token = self.read_token(&ids.accessor).await?;
        let own = token.filter(|token| self.is_own_client(&token.description, &token.policies));
        Ok(own.map(|token| token.accessor_id))
    }
}

/// Returns the name of a token in a change.
fn shown(accessor: &str) -> String {
    format!("Consul clients ({accessor})")
}

fn names(policies: &[AclLink]) -> String {
    let names: Vec<&str> = policies.iter().map(|link| link.name.as_str()).collect();
    names.join(", ")
}
