//! The secret of each service: which ids it holds, and which it has to hold next.

use consul_watch::types::{AclToken, AclTokenEntry};
use secrecy::SecretString;

use super::{ServiceTokens, listing::ServiceState, memory::Verified};
use crate::{
    Action, Change, Error, Object, Result, Writer,
    secret_store::{Replaced, SecretVersion, StoredSecret},
    service_name::{ServiceName, Subject},
    token_ids::{ParsedSecret, Stage, TokenIds},
};

/// Number of attempts while other writers change a secret at the same time.
const ATTEMPTS: usize = 5;

/// Next step for a secret.
enum Next {
    /// Keep it: it holds the ids of this token of the service.
    Keep(Box<AclToken>, TokenIds),
    /// Create the token for the ids in it.
    Make(TokenIds),
    /// Write these ids into it.
    Write(TokenIds),
}

impl ServiceTokens {
    /// Refuses a secret that is shared, because a token must not overwrite another one's.
    pub(super) fn refuse_shared_secret(
        &self,
        service: &ServiceName,
        state: &ServiceState,
    ) -> Result<()> {
        let name = service.secret_name(&self.settings.secret_prefix);
        let refuse = |whose: &str| {
            Err(Error::input(format!(
                "its secret {name} would also be that of {whose}; give one of them another name"
            )))
        };
        if self.settings.client_secret.as_deref().is_some_and(|clients| is_same(clients, &name)) {
            return refuse("the Consul clients");
        }
        if state.collisions.is_empty() {
            return Ok(());
        }
        let collisions: Vec<String> = state.collisions.iter().map(ToString::to_string).collect();
        refuse(&format!("service {}", collisions.join(", ")))
    }

    /// Reconciles secret and token of a service; `None` in a dry run that would change them.
    pub(super) async fn ensure_ids_and_token(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
        (policy, stored, check): (Option<String>, StoredSecret, bool),
    ) -> Result<Option<Verified>> {
        let name = service.secret_name(&self.settings.secret_prefix);
        let policy = policy.as_deref();
        let mut known = Some(stored);
        // Ids that Consul refused, although they are well-formed.
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let stored = match known.take() {
                Some(stored) => stored,
                None => self.read_secret(&name).await?,
            };
            let (ids, version) =
                match self.next_ids(service, state, &stored, refused.as_deref()).await? {
                    Next::Keep(token, ids) => {
                        self.ensure_links(writer, service, &token, policy).await?;
                        let mut verified = Verified {
                            accessor: token.accessor_id,
                            version: stored.version,
                            stage: ids.stage,
                        };
                        if check && ids.stage == Stage::Pending {
                            self.note_made(writer, &name, &ids, &mut verified).await?;
                        }
                        return Ok(Some(verified));
                    }
                    Next::Make(ids) => (ids, stored.version),
                    Next::Write(ids) => {
                        match self.write_secret(writer, &name, &stored.version, &ids).await? {
                            Some(Replaced::Done(version)) => (ids, version),
                            Some(Replaced::Conflict) => continue,
                            None => {
                                self.plan_token(writer, service, state).await?;
                                return Ok(None);
                            }
                        }
                    }
                };
            if self.ensure_token(writer, service, &ids, policy).await? {
                return Ok(Some(Verified { accessor: ids.accessor, version, stage: ids.stage }));
            }
            refused = Some(ids.accessor);
        }
        Err(Error::Other {
            operation: format!("updating the secret {name}"),
            retryable: true,
            retry_after: None,
            source: "somebody else keeps changing it".into(),
        })
    }

    /// Records in a secret that its token exists, so that its ids are never used for another one.
    ///
    /// Done at a later check, since it is a second write for each new token.
    async fn note_made(
        &self,
        writer: &Writer,
        name: &str,
        ids: &TokenIds,
        verified: &mut Verified,
    ) -> Result<()> {
        // After a conflict the next check sees what another writer has written.
        if let Some(Replaced::Done(version)) =
            self.write_secret(writer, name, &verified.version, &ids.made()).await?
        {
            (verified.version, verified.stage) = (version, Stage::Made);
        }
        Ok(())
    }

    /// Writes the ids of the next token into the secret of a service before its token is deleted:
    /// tasks that start later get these, and the deleted token's secret id does not return.
    pub(super) async fn retire_ids(
        &self,
        writer: &Writer,
        service: &ServiceName,
        state: &ServiceState,
    ) -> Result<()> {
        let name = service.secret_name(&self.settings.secret_prefix);
        let stored = match self.find_secret(&name).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(()),
            // Deleting would hand the old ids to the next task; the next pass tries again.
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                tracing::warn!(
                    service = %service,
                    error = &error as &dyn std::error::Error,
                    "the secret keeps the ids of a token that is deleted"
                );
                return Ok(());
            }
        };
        let ParsedSecret::Ids(ids) = ParsedSecret::read(stored.value.as_ref()) else {
            return Ok(());
        };
        // The secret is already ahead, or belongs to somebody else.
        if !state.tokens.iter().any(|token| token.object.accessor_id == ids.accessor) {
            return Ok(());
        }
        // An earlier pass may have got as far as this.
        if let Some(token) = self.read_token(&ids.accessor).await?
            && ids.has_secret(secret_of(&token)?)
        {
            self.write_secret(writer, &name, &stored.version, &ids.with_new_secret()).await?;
        }
        Ok(())
    }

    pub(super) async fn find_secret(&self, name: &str) -> Result<Option<StoredSecret>> {
        let stored = self.secrets.get(name).await;
        stored.map_err(|error| Error::step(format!("retrieving secret {name}"), error))
    }

    pub(super) async fn read_secret(&self, name: &str) -> Result<StoredSecret> {
        self.find_secret(name).await?.ok_or_else(|| no_secret(name))
    }

    /// Returns `true` if Consul once had a token with these ids.
    fn was_made(&self, service: &ServiceName, ids: &TokenIds) -> bool {
        let memory = self.memory();
        let verified = memory.verified(service);
        ids.stage == Stage::Made || verified.is_some_and(|known| known.accessor == ids.accessor)
    }

    /// Decides about ids without a token in Consul: they are used, unless their token was deleted.
    fn revived(&self, service: &ServiceName, ids: &TokenIds) -> Next {
        if !self.was_made(service, ids) {
            return Next::Make(ids.clone());
        }
        tracing::warn!(
            service = %service,
            accessor_id = ids.accessor,
            "the token was deleted and gets another secret; tasks that run with the old one have to be started again"
        );
        self.memory().forget(service);
        Next::Write(ids.with_new_secret())
    }

    /// Decides which ids a service's secret holds, or has to hold.
    ///
    /// An existing token of the service takes precedence over anything that somebody wrote into the
    /// secret, because running tasks have it.
    async fn next_ids(
        &self,
        service: &ServiceName,
        state: &ServiceState,
        stored: &StoredSecret,
        refused: Option<&str>,
    ) -> Result<Next> {
        let parsed = ParsedSecret::read(stored.value.as_ref());
        if let ParsedSecret::Ids(ids) = &parsed
            && refused != Some(ids.accessor.as_str())
        {
            match self.read_token(&ids.accessor).await? {
                Some(token) if self.is_of(service, &token.description) => {
                    let secret = secret_of(&token)?;
                    if ids.has_secret(secret) {
                        return Ok(Next::Keep(Box::new(token), ids.clone()));
                    }
                    let accessor = ids.accessor.clone();
                    return Ok(Next::Write(TokenIds::of_token(accessor, secret.clone())));
                }
                // Another owner's token is not for this service's tasks.
                Some(_) => {}
                None if state.tokens.is_empty() => return Ok(self.revived(service, ids)),
                None => {
                    return Ok(match self.existing(service, state).await? {
                        Some(found) => Next::Write(found),
                        None => self.revived(service, ids),
                    });
                }
            }
        }
        if let Some(found) = self.existing(service, state).await? {
            return Ok(Next::Write(found));
        }
        match parsed {
            ParsedSecret::Foreign(reason) => {
                let name = service.secret_name(&self.settings.secret_prefix);
                Err(Error::input(format!(
                    "unmarshalling secret value: {name}: {reason}; to let the controller fill it, make it {{}}"
                )))
            }
            ParsedSecret::Ids(_) | ParsedSecret::Nothing => Ok(Next::Write(TokenIds::generate())),
        }
    }

    /// Returns the ids of the oldest token that Consul has for the service.
    async fn existing(
        &self,
        service: &ServiceName,
        state: &ServiceState,
    ) -> Result<Option<TokenIds>> {
        let mut tokens: Vec<&AclTokenEntry> =
            state.tokens.iter().map(|found| &found.object).collect();
        tokens.sort_by_key(|token| (token.create_index, token.accessor_id.clone()));
        for listed in tokens {
            let token = self.read_token(&listed.accessor_id).await?;
            // Lists show no secret ids, and may be older than a deletion.
            if let Some(token) = token.filter(|token| self.is_of(service, &token.description)) {
                let secret = secret_of(&token)?.clone();
                return Ok(Some(TokenIds::of_token(token.accessor_id, secret)));
            }
        }
        Ok(None)
    }

    pub(super) fn is_of(&self, service: &ServiceName, description: &str) -> bool {
        self.read_description(Subject::Token, description).as_ref() == Some(service)
    }

    pub(super) async fn write_secret(
        &self,
        writer: &Writer,
        name: &str,
        expected: &SecretVersion,
        ids: &TokenIds,
    ) -> Result<Option<Replaced>> {
        let change = Change::new(Action::Update, Object::Secret, name);
        let value = ids.to_json();
        writer
            .write(change, async {
                let replaced = self.secrets.replace(name, expected, &value).await;
                replaced.map_err(|error| Error::step(format!("updating secret {name}"), error))
            })
            .await
    }
}

/// Returns the error of a service whose secret the deployment has not created.
pub(super) fn no_secret(name: &str) -> Error {
    Error::input(format!(
        "retrieving secret {name}: there is none; the deployment has to make it, with the value {{}}"
    ))
}

/// Returns `true` if a secret, given by name or ARN, is the one with this name. An ARN has a hyphen
/// and six random characters behind the name.
fn is_same(name_or_arn: &str, name: &str) -> bool {
    let by_arn = name_or_arn.strip_prefix("arn:").and_then(|arn| arn.split_once(":secret:"));
    match by_arn.and_then(|(_, rest)| rest.strip_prefix(name)) {
        Some(rest) => {
            rest.is_empty() || rest.strip_prefix('-').is_some_and(|random| random.len() == 6)
        }
        None => name_or_arn == name,
    }
}

/// Returns the secret id of a token, which Consul shows only to those who may write ACLs.
pub(super) fn secret_of(token: &AclToken) -> Result<&SecretString> {
    token.secret_id.as_ref().ok_or_else(|| {
        Error::input(format!(
            "the secret of token {} cannot be seen: the controller's own token needs acl:write",
            token.accessor_id
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_is_of_the_secret_with_its_name() {
        let arn = "arn:aws:secretsmanager:eu-central-1:1:secret:prod-client";
        for same in ["prod-client", arn, &format!("{arn}-AbCdEf")] {
            assert!(is_same(same, "prod-client"), "{same}");
        }
        for other in ["prod", "prod-clients", &format!("{arn}s"), &format!("{arn}-x-AbCdEf")] {
            assert!(!is_same(other, "prod-client"), "{other}");
        }
    }
}
