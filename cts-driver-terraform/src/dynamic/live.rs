//! Values of templates from the environment, Consul and Vault, read at each run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{Client, ClientConfig, QueryOptions, error_chain};
use cts_tasks::DriverSettings;
use futures::future::try_join_all;
use secrecy::SecretString;
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep_until, timeout},
};

#[cfg(feature = "vault")]
use super::vault::{Problem, Secret, Uses, Vault};
use super::{Reference, ValueSource, Values};
use crate::{Error, Result};

/// Longest wait for a value.
///
/// Source: Consul-Terraform-Sync 0.9, evaluation of provider blocks.
const LIMIT: Duration = Duration::from_secs(5);

/// Shortest time between two looks at a key that is not there. Consul answers
/// at once when another key changes, or when something between has dropped the
/// index to wait for.
const LOOKS: Duration = Duration::from_millis(100);

/// Asks the environment, Consul and Vault themselves, again at each call.
///
/// A key that is not there is waited for, at most 5 s. Clients are made at the
/// first look-up that needs them.
///
/// Source: Consul-Terraform-Sync 0.9, dynamic configuration of providers.
///
/// Deviation: upstream evaluates once, at the start.
pub struct LiveValues {
    environment: Arc<BTreeMap<String, String>>,
    consul: ClientConfig,
    kv: Arc<OnceCell<Client>>,
    #[cfg(feature = "vault")]
    vault: Option<VaultValues>,
    limit: Duration,
}

/// Vault as one user of it sees it.
#[cfg(feature = "vault")]
struct VaultValues {
    vault: Arc<Vault>,
    uses: Uses,
    /// `true` if what was looked up is kept.
    keeps: bool,
}

#[cfg(feature = "vault")]
impl VaultValues {
    fn new(vault: Arc<Vault>, keeps: bool) -> Self {
        Self { uses: Uses::new(&vault), vault, keeps }
    }

    async fn read(&self, path: &str) -> Result<Secret, Problem> {
        if self.keeps {
            return self.uses.read(path).await;
        }
        self.vault.read(path).await.map(|(secret, _)| secret)
    }
}

impl LiveValues {
    /// The places that the configuration names, and this process's environment.
    pub fn new(settings: DriverSettings<'_>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            environment: Arc::new(environment),
            consul: settings.consul.client_config(),
            kv: Arc::default(),
            #[cfg(feature = "vault")]
            vault: settings.vault.map(|vault| VaultValues::new(Arc::new(Vault::new(vault)), false)),
            limit: LIMIT,
        }
    }

    /// Replaces the environment.
    #[must_use]
    pub fn with_environment(mut self, environment: BTreeMap<String, String>) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// Sets the longest wait for a key or a secret; 5 s by default.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    async fn kv(&self) -> Result<&Client> {
        self.kv
            .get_or_try_init(|| async {
                let client = Client::new(self.consul.clone());
                client.map_err(|error| failure("Consul", &error, false))
            })
            .await
    }

    /// The value of a key; waits until there is one.
    async fn key(&self, path: &str, reference: &Reference) -> Result<SecretString> {
        let kv = self.kv().await?;
        let mut options = QueryOptions::default();
        options.wait = Some(self.limit);
        loop {
            let next = Instant::now() + LOOKS;
            let answer = kv
                .kv_get(path, &options)
                .await
                .map_err(|error| failure(reference, &error, error.is_retryable()))?;
            let Some(pair) = answer.value else {
                options.index = answer.meta.index;
                sleep_until(next).await;
                continue;
            };
            let text = String::from_utf8(pair.value.to_vec()).map_err(|_not_shown| {
                value_error(reference, "it is not UTF-8 text".to_owned(), false)
            })?;
            return Ok(text.into());
        }
    }

    async fn key_in_time(&self, path: &str, reference: &Reference) -> Result<SecretString> {
        match timeout(self.limit, self.key(path, reference)).await {
            Ok(value) => value,
            Err(_elapsed) => {
                let after = self.limit.as_secs_f64();
                Err(value_error(reference, format!("no such key within {after} s"), true))
            }
        }
    }

    #[cfg(feature = "vault")]
    async fn fields(&self, path: &str, wanted: &[&Reference]) -> Result<Values> {
        let Some(first) = wanted.first() else { return Ok(Values::new()) };
        let Some(vault) = &self.vault else {
            return Err(value_error(first, "there is no vault block".to_owned(), false));
        };
        let secret = match timeout(self.limit, vault.read(path)).await {
            Ok(secret) => {
                secret.map_err(|problem| value_error(first, problem.message, problem.retryable))?
            }
            Err(_elapsed) => {
                let after = self.limit.as_secs_f64();
                return Err(value_error(first, format!("no answer within {after} s"), true));
            }
        };
        let field = |reference: &&Reference| match reference {
            Reference::Secret { field, .. } => {
                let found = secret.field(field);
                let value = found.map_err(|problem| value_error(reference, problem, false))?;
                Ok(((*reference).clone(), value))
            }
            _ => Err(value_error(reference, "it is no secret".to_owned(), false)),
        };
        wanted.iter().map(field).collect()
    }

    #[cfg(not(feature = "vault"))]
    #[expect(clippy::unused_async, reason = "it waits where the feature `vault` is on")]
    async fn fields(&self, _path: &str, wanted: &[&Reference]) -> Result<Values> {
        match wanted.first() {
            Some(first) => {
                let problem = "this program was built without the feature \"vault\"".to_owned();
                Err(value_error(first, problem, false))
            }
            None => Ok(Values::new()),
        }
    }
}

#[async_trait]
impl ValueSource for LiveValues {
    async fn look_up(&self, wanted: &BTreeSet<Reference>) -> Result<Values> {
        let mut values = Values::new();
        let mut keys = Vec::new();
        let mut secrets: BTreeMap<&str, Vec<&Reference>> = BTreeMap::new();
        for reference in wanted {
            match reference {
                Reference::Environment { name } => {
                    let value = self.environment.get(name).cloned().unwrap_or_default();
                    values.insert(reference.clone(), value.into());
                }
                Reference::ConsulKey { path } => keys.push((path, reference)),
                Reference::Secret { path, .. } => secrets.entry(path).or_default().push(reference),
            }
        }
        let keys = keys.into_iter().map(|(path, reference)| async move {
            Ok::<_, Error>((reference.clone(), self.key_in_time(path, reference).await?))
        });
        let secrets = secrets.into_iter();
        let secrets = secrets.map(|(path, wanted)| async move { self.fields(path, &wanted).await });
        let (keys, secrets) =
            futures::future::try_join(try_join_all(keys), try_join_all(secrets)).await?;
        values.extend(keys);
        values.extend(secrets.into_iter().flatten());
        Ok(values)
    }

    /// Renews the token of Vault, if the configuration says so, until it can
    /// live no longer, and the leases of secrets that tasks use. Ends at once without Vault, and
    /// else never.
    ///
    /// Deviation: upstream reads `renew_token` and renews nothing.
    #[cfg(feature = "vault")]
    async fn keep_alive(&self) {
        if let Some(VaultValues { vault, .. }) = &self.vault {
            futures::future::join(vault.keep_token(), vault.keep_leases()).await;
        }
    }

    /// Shares clients and leases, and keeps the lease of each secret that it has looked up.
    #[cfg(feature = "vault")]
    fn for_task(&self) -> Option<Arc<dyn ValueSource>> {
        let vault = Arc::clone(&self.vault.as_ref()?.vault);
        Some(Arc::new(Self {
            environment: Arc::clone(&self.environment),
            consul: self.consul.clone(),
            kv: Arc::clone(&self.kv),
            vault: Some(VaultValues::new(vault, true)),
            limit: self.limit,
        }))
    }

    /// Waits until a secret of Vault that has a lease was read again, because the lease ended or
    /// could not be renewed, and is another one. Other values are only read at each look-up.
    ///
    /// The leases of these secrets are kept from now on, until this source is dropped.
    #[cfg(feature = "vault")]
    async fn changed(&self, wanted: &BTreeSet<Reference>) {
        let paths: BTreeSet<&str> = wanted
            .iter()
            .filter_map(|reference| match reference {
                Reference::Secret { path, .. } => Some(path.as_str()),
                _ => None,
            })
            .collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        match &self.vault {
            Some(vault) if !paths.is_empty() => vault.uses.changed(&paths).await,
            _ => std::future::pending::<()>().await,
        }
    }
}

impl fmt::Debug for LiveValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveValues").field("limit", &self.limit).finish_non_exhaustive()
    }
}

fn value_error(reference: &Reference, problem: String, retryable: bool) -> Error {
    Error::Value { reference: reference.to_string(), provider: None, problem, retryable }
}

fn failure(reference: impl fmt::Display, error: &consul_watch::Error, retryable: bool) -> Error {
    let problem = error_chain(error);
    Error::Value { reference: reference.to_string(), provider: None, problem, retryable }
}
