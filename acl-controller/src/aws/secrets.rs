//! Secret store on AWS Secrets Manager, with compare-and-swap built from version ids.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use aws_sdk_secretsmanager::{
    Client,
    types::{Filter, FilterNameStringType, SecretListEntry},
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::{
    call::{CallError, paced},
    pages::{Circle, Pages},
};
use crate::{
    Error, Result, SecretStore,
    secret_store::{Replaced, SecretVersion, StoredSecret},
};

/// Staging label of the version that readers get.
const CURRENT: &str = "AWSCURRENT";
/// Number of times that a secret may have been put back to one version before a write from that
/// version is abandoned.
const PUT_BACK_LIMIT: u32 = 20;

/// Secrets of AWS Secrets Manager, in one account and region, by name or ARN.
///
/// A write reads first: `UpdateSecret` compares nothing, but it refuses to change an existing
/// version. So the id of the new version is derived from the id of the version that it is to
/// replace, and of several writers only the first succeeds.
///
/// Whoever writes by hand uses other ids; such a write between our read and our write becomes the
/// previous version.
///
/// Needs `secretsmanager:GetSecretValue` and `secretsmanager:UpdateSecret`;
/// `secretsmanager:ListSecrets` where it is permitted.
///
/// Source: `UpdateSecret`, `GetSecretValue` and `ListSecrets` in the API reference of AWS Secrets
/// Manager.
#[derive(Debug, Clone)]
pub struct SecretsManager {
    client: Client,
    throttle_patience: Duration,
}

/// Version of a secret as the service returns it.
struct Version {
    value: Option<SecretString>,
    binary: bool,
    id: SecretVersion,
    stages: Vec<String>,
}

impl SecretsManager {
    pub(super) fn new(client: Client, throttle_patience: Duration) -> Self {
        Self { client, throttle_patience }
    }

    /// Reads the current version of a secret, or the one with this id; `None` if the secret has
    /// none.
    async fn version(&self, name: &str, id: Option<&str>) -> Result<Option<Version>, CallError> {
        let request = self.client.get_secret_value().secret_id(name);
        let request = request.set_version_id(id.map(str::to_owned));
        let answer = paced(self.throttle_patience, || request.clone().send()).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if lacks_value(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(Version {
            value: answer.secret_string.map(SecretString::from),
            binary: answer.secret_binary.is_some(),
            id: SecretVersion::new(answer.version_id.unwrap_or_default()),
            stages: answer.version_stages.unwrap_or_default(),
        }))
    }

    async fn current(&self, name: &str) -> Result<SecretVersion> {
        let version = self.version(name, None).await.map_err(|error| reading(name, error))?;
        Ok(version.map(|version| version.id).unwrap_or_default())
    }

    /// Returns `true` if the version with this id was current once, and no longer is.
    async fn is_superseded(&self, name: &str, id: &str) -> Result<bool> {
        let version = self.version(name, Some(id)).await.map_err(|error| reading(name, error))?;
        Ok(version.is_some_and(|version| !version.stages.iter().any(|stage| stage == CURRENT)))
    }

    async fn entries(&self, names: &[&str]) -> Result<Option<Vec<SecretListEntry>>> {
        let filter = Filter::builder()
            .key(FilterNameStringType::Name)
            .set_values(Some(names.iter().map(|&name| name.to_owned()).collect()))
            .build();
        let mut entries = Vec::new();
        let mut pages = Pages::default();
        loop {
            let request = self.client.list_secrets().filters(filter.clone()).max_results(100);
            let request = request.set_next_token(pages.token());
            let answer = paced(self.throttle_patience, || request.clone().send()).await;
            let page = match answer {
                Ok(page) => page,
                // The permission is optional: without it each secret is read by itself.
                Err(error) if error.is("AccessDeniedException") => return Ok(None),
                Err(error) => return Err(error.during("listing secrets")),
            };
            entries.extend(page.secret_list.unwrap_or_default());
            match pages.advance(page.next_token) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(entries)),
                Err(Circle) => {
                    let problem = "listing secrets: Secrets Manager gives a page again".to_owned();
                    return Err(Error::Input { problem });
                }
            }
        }
    }
}

#[async_trait]
impl SecretStore for SecretsManager {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        match self.version(name, None).await {
            Ok(Some(Version { value: None, binary: true, .. })) => {
                let problem = format!("the secret {name} holds a binary value; it has to be text");
                Err(Error::Input { problem })
            }
            Ok(Some(version)) => Ok(Some(StoredSecret::new(version.value, version.id))),
            // A secret that was created without a value: an empty version id stands for that.
            Ok(None) => Ok(Some(StoredSecret::new(None, SecretVersion::default()))),
            Err(error) if error.is("ResourceNotFoundException") => Ok(None),
            Err(error) => Err(reading(name, error)),
        }
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        for put_back in 0..PUT_BACK_LIMIT {
            // Checked again although the caller did: the window between this read and the write is
            // what remains for writers with other ids.
            if self.current(name).await? != *expected {
                return Ok(Replaced::Conflict);
            }
            let id = successor(expected, put_back);
            let request = self.client.update_secret().secret_id(name).client_request_token(&id);
            let request = request.secret_string(value.expose_secret());
            let answer = paced(self.throttle_patience, || request.clone().send()).await;
            match answer {
                Ok(_) => return Ok(Replaced::Done(SecretVersion::new(id))),
                // The version exists: it was written from the same expected version before.
                Err(error) if error.is("ResourceExistsException") => {}
                Err(error) => return Err(error.during(format!("updating the secret {name}"))),
            }
            // Either another writer was first, or somebody has put the secret back since.
            if !self.is_superseded(name, &id).await? {
                return Ok(Replaced::Conflict);
            }
        }
        let problem = format!(
            "the secret {name} was put back to the version {} {PUT_BACK_LIMIT} times; \
             write a new value into it",
            expected.as_str()
        );
        Err(Error::Input { problem })
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        let by_arn = prefix.starts_with("arn:");
        // `ListSecrets` filters by name only; the ARN is compared below.
        let names = names_behind(prefix);
        let Some(entries) = self.entries(&names).await? else { return Ok(None) };
        let versions = entries.into_iter().filter_map(|entry| {
            let current = current_version(&entry)?;
            let name = if by_arn { entry.arn } else { entry.name }?;
            name.starts_with(prefix).then_some((name, current))
        });
        Ok(Some(versions.collect()))
    }
}

/// Returns `true` if the secret exists, but not the requested version.
fn lacks_value(error: &CallError) -> bool {
    let message = error.message();
    error.is("ResourceNotFoundException")
        && ["staging label", "VersionId"].iter().any(|of_version| message.contains(of_version))
}

fn reading(name: &str, error: CallError) -> Error {
    error.during(format!("retrieving the secret {name}"))
}

/// Derives the id of the version that replaces this one: a UUID from it and from the number of
/// times that the secret was put back to it.
fn successor(expected: &SecretVersion, put_back: u32) -> String {
    let mut hash = Sha256::new();
    // A fixed prefix keeps these ids apart from those of other programs that hash alike.
    hash.update(b"consul acl-controller\0");
    hash.update(expected.as_str().as_bytes());
    hash.update(put_back.to_be_bytes());
    let mut bytes = [0; 16];
    for (byte, hashed) in bytes.iter_mut().zip(hash.finalize()) {
        *byte = hashed;
    }
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// Returns the beginnings of the names of all secrets whose name or ARN begins with the prefix; an
/// ARN has six random characters behind the name.
fn names_behind(prefix: &str) -> Vec<&str> {
    let Some((_, name)) =
        prefix.starts_with("arn:").then(|| prefix.split_once(":secret:")).flatten()
    else {
        return vec![prefix];
    };
    let bare = name.rsplit_once('-').filter(|(_, random)| {
        random.len() <= 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    [Some(name), bare.map(|(bare, _)| bare)].into_iter().flatten().collect()
}

fn current_version(entry: &SecretListEntry) -> Option<SecretVersion> {
    let stages = entry.secret_versions_to_stages()?;
    let current = stages.iter().find(|(_, stages)| stages.iter().any(|stage| stage == CURRENT))?;
    Some(SecretVersion::new(current.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_version_follows_from_the_current_one() {
        let (first, second) = (SecretVersion::new("a"), SecretVersion::new("b"));
        assert_eq!(successor(&first, 0), successor(&first, 0));
        assert_ne!(successor(&first, 0), successor(&second, 0));
        assert_ne!(successor(&first, 0), successor(&first, 1));
        assert!(uuid::Uuid::parse_str(&successor(&SecretVersion::default(), 0)).is_ok());
    }

    #[test]
    fn an_arn_is_looked_up_by_its_name() {
        assert_eq!(names_behind("prod-"), ["prod-"]);
        let arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod-web-AbCdEf";
        assert_eq!(names_behind(arn), ["prod-web-AbCdEf", "prod-web"]);
    }
}
