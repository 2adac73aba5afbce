//! Connections: their settings, TLS, and what is done when one is new.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use secrecy::ExposeSecret as _;
use tokio::{sync::watch, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, Connection, NoTls, Socket, Statement,
    config::{SslMode, TargetSessionAttrs},
    tls::TlsStream,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::{
    config::{PostgresConfig, PostgresTls, misconfigured, split_host},
    failure::{Failure, judge_connecting},
    progress::Progress,
    schema::{Statements, random_name},
};
use crate::backend::{Result, store::sync::lock};

/// Time after which a connection that carries nothing is probed, and between probes.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The maker of connections, and the manager of their pool.
pub(super) struct Connector {
    /// Settings for each host.
    hosts: Vec<tokio_postgres::Config>,
    /// Place of the host that took writes last.
    preferred: AtomicUsize,
    tls: Option<MakeRustlsConnect>,
    connect_timeout: Duration,
    /// Limit of any statement, which the server keeps.
    statement_timeout: Duration,
    statements: Arc<Statements>,
    progress: Arc<Progress>,
}

/// A connection of the pool, with the statements that were prepared on it.
pub(super) struct Pooled {
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
    _task: AbortOnDropHandle<()>,
}

/// A connection of its own. Dropping it ends it.
pub(super) struct Dedicated {
    pub(super) client: Client,
    /// Changes with each notification; its sender is gone when the connection is.
    pub(super) told: watch::Receiver<()>,
    _task: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pooled").finish_non_exhaustive()
    }
}

impl Deref for Pooled {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Pooled {
    /// Prepares a statement, once for each connection.
    pub(super) async fn prepare_cached(
        &self,
        text: &str,
    ) -> Result<Statement, tokio_postgres::Error> {
        let known = lock(&self.prepared).get(text).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let statement = self.client.prepare(text).await?;
        lock(&self.prepared).insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Connector {
    pub(super) fn new(
        config: &PostgresConfig,
        statements: &Arc<Statements>,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        if config.hosts.is_empty() {
            return Err(misconfigured("no host of PostgreSQL is given"));
        }
        let hosts = config.hosts.iter().map(|host| settings_of(host, config));
        Ok(Self {
            hosts: hosts.collect::<Result<_>>()?,
            preferred: AtomicUsize::new(0),
            tls: config.tls.as_ref().map(tls_of).transpose()?,
            connect_timeout: config.connect_timeout,
            statement_timeout: config.long_timeout(),
            statements: Arc::clone(statements),
            progress: Arc::clone(progress),
        })
    }

    /// Makes a connection to the first host that takes writes.
    ///
    /// The driver could go through the hosts by itself, but it stays with one that takes
    /// the connection and then says nothing, as a machine that hangs does.
    pub(super) async fn dedicated(&self) -> Result<Dedicated, Failure> {
        let preferred = self.preferred.load(Ordering::Relaxed);
        let places = (0..self.hosts.len()).map(|step| (preferred + step) % self.hosts.len());
        let mut failures = Vec::new();
        for (place, host) in places.filter_map(|place| Some((place, self.hosts.get(place)?))) {
            let failure = match timeout(self.connect_timeout, self.connect(host)).await {
                Ok(Ok(dedicated)) => {
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(dedicated);
                }
                Ok(Err(error)) => judge_connecting(&error),
                Err(_elapsed) => Failure::Unreachable("it does not answer".to_owned()),
            };
            failures.push(failure);
        }
        // One that refuses does not matter where another one may come back.
        let is_refused = failures.iter().all(|failure| !failure.is_passing());
        let reasons: Vec<_> = failures.into_iter().map(Failure::into_reason).collect();
        let reason = reasons.join("; ");
        Err(if is_refused { Failure::Refused(reason) } else { Failure::Unreachable(reason) })
    }

    async fn connect(
        &self,
        host: &tokio_postgres::Config,
    ) -> Result<Dedicated, tokio_postgres::Error> {
        let dedicated = if let Some(tls) = &self.tls {
            let (client, connection) = host.connect(tls.clone()).await?;
            Dedicated::new(client, connection)
        } else {
            let (client, connection) = host.connect(NoTls).await?;
            Dedicated::new(client, connection)
        };
        prepare(&dedicated.client, self.statement_timeout).await?;
        Ok(dedicated)
    }
}

impl Manager for Connector {
    type Type = Pooled;
    type Error = Failure;

    async fn create(&self) -> Result<Pooled, Failure> {
        let dedicated = self.dedicated().await?;
        let adopted = adopt(&dedicated.client, &self.statements, &self.progress).await;
        adopted.map_err(|error| judge_connecting(&error))?;
        let Dedicated { client, told: _, _task: task } = dedicated;
        let pooled = Pooled { client, prepared: Mutex::default(), _task: task };
        // Otherwise a write whose preparation is not answered would count as one that may have
        // taken place.
        let prepared = pooled.prepare_cached(&self.statements.write).await;
        prepared.map_err(|error| judge_connecting(&error))?;
        Ok(pooled)
    }

    async fn recycle(&self, pooled: &mut Pooled, _: &Metrics) -> RecycleResult<Failure> {
        // One that breaks later is found out by whoever uses it.
        if pooled.client.is_closed() { Err(RecycleError::message("it is closed")) } else { Ok(()) }
    }
}

fn settings_of(host: &str, config: &PostgresConfig) -> Result<tokio_postgres::Config> {
    let mut settings = tokio_postgres::Config::new();
    let (host, port) = split_host(host)?;
    settings
        .host(host)
        .port(port)
        .user(config.user.as_str())
        .dbname(config.database.as_str())
        .application_name("resource-store")
        .connect_timeout(config.connect_timeout)
        // A standby answers reads with what it has, which may be old, and takes no write.
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .keepalives(true)
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE)
        .keepalives_retries(3)
        // Otherwise what was sent to a machine that is gone waits for a quarter of an hour.
        .tcp_user_timeout(config.attempt_timeout)
        .ssl_mode(if config.tls.is_some() { SslMode::Require } else { SslMode::Disable });
    if let Some(password) = &config.password {
        settings.password(password.expose_secret());
    }
    Ok(settings)
}

impl Dedicated {
    fn new<T>(client: Client, mut connection: Connection<Socket, T>) -> Self
    where
        T: TlsStream + Unpin + Send + 'static,
    {
        let (telling, told) = watch::channel(());
        let task = tokio::spawn(async move {
            // Ends with an error or with the client; who waits for an answer is notified.
            while let Some(Ok(message)) =
                std::future::poll_fn(|cx| connection.poll_message(cx)).await
            {
                if let AsyncMessage::Notification(_) = message {
                    telling.send_replace(());
                }
            }
        });
        Self { client, told, _task: AbortOnDropHandle::new(task) }
    }
}

/// Settings of a session, whatever the role and the database have as theirs.
async fn prepare(client: &Client, limit: Duration) -> Result<(), tokio_postgres::Error> {
    // Under a stricter isolation a write would fail where it now waits for its turn. With
    // synchronous_commit off a crash of the server would lose what was acknowledged;
    // what is stricter than on stays. The rest ends a session whose client is gone, which
    // may hold the lock for which every writer waits.
    let settings = format!(
        "SET statement_timeout = {}; SET lock_timeout = 0; \
         SET default_transaction_isolation = 'read committed'; \
         SET idle_in_transaction_session_timeout = '30s'; \
         SET tcp_keepalives_idle = {keepalive}; SET tcp_keepalives_interval = {keepalive}; \
         SET tcp_keepalives_count = 3; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'",
        limit.as_millis(),
        keepalive = KEEPALIVE.as_secs(),
    );
    client.batch_execute(&settings).await
}

/// Learns the name of the history, and begins another one where the server is a
/// standby that was promoted, or was recovered to a point in time: the last changes of
/// before may be missing here, and their numbers are given again.
pub(super) async fn adopt(
    client: &Client,
    statements: &Statements,
    progress: &Progress,
) -> Result<(), tokio_postgres::Error> {
    let row = client.query_one(&statements.adopt, &[&random_name()]).await?;
    progress.learn(row.try_get(0)?, row.try_get(1)?);
    Ok(())
}

fn tls_of(tls: &PostgresTls) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| misconfigured(&error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca_pem, "that signs the servers'")? {
        roots.add(certificate).map_err(|error| misconfigured(&error.to_string()))?;
    }
    let builder = builder.with_root_certificates(roots);
    let config = match &tls.identity_pem {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates(chain, "of the client")?;
            let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
                .map_err(|_quotes_nothing| misconfigured("the client's key is not valid PEM"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| misconfigured(&error.to_string()))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(pem: &str, which: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found =
        found.map_err(|error| misconfigured(&format!("the certificate {which}: {error}")))?;
    if found.is_empty() {
        return Err(misconfigured(&format!("there is no certificate {which} in the PEM")));
    }
    Ok(found)
}
