//! Commits on a Palo Alto Networks firewall after an apply.

mod connection;
mod response;
mod settings;

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use async_trait::async_trait;
use consul_watch::{Backoff, Jitter};
use cts_tasks::{ProviderBlock, Stop};
use secrecy::SecretString;
use tokio::time::{Instant, sleep};

use self::{
    connection::Connection,
    response::{Commit, Job},
    settings::PanosSettings,
};
use super::Handler;
use crate::{Error, Result};

/// Tries after the first.
const RETRIES: u32 = 4;

/// Interval between two questions whether a commit is done.
const POLL: Duration = Duration::from_secs(1);

/// Time limit of a commit.
const COMMIT_LIMIT: Duration = Duration::from_mins(15);

const DESCRIPTION: &str = "Consul-Terraform-Sync Commit";

/// Commits on a Palo Alto Networks firewall what its provider changed: only the
/// changes of the provider's own user.
///
/// The block's arguments `hostname`, `username`, `password` or `api_key`,
/// `protocol`, `port`, `timeout` (in seconds, 10 by default) and
/// `verify_certificate` are used; for one that is not there, the variable that
/// the provider reads (`PANOS_HOSTNAME` and so on) of `task_env`, or else of
/// the environment. Without an `api_key` one is asked for with the password.
/// Secrets are sent in the body of requests, never in their address.
///
/// An attempt that failed is made again up to 4 times, after 1 to 1.5 s, 2 to
/// 3 s, and so on; but not when the firewall refuses the credentials.
///
/// Source: Consul-Terraform-Sync 0.9, handler of `panos`; PAN-OS XML API.
///
/// Deviation: the certificate of the firewall is checked unless
/// `verify_certificate` is false. `json_config_file` is not read.
#[derive(Debug)]
pub struct PanosCommit {
    environment: BTreeMap<String, SecretString>,
    delays: Backoff,
    poll: Duration,
}

impl PanosCommit {
    /// A handler that takes `PANOS_*` from this environment.
    pub fn new(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let texts = environment.into_iter().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, SecretString::from(value.into_string().ok()?)))
        });
        let environment = texts.filter(|(name, _)| name.starts_with("PANOS_")).collect();
        let delays =
            Backoff::default().with_initial(Duration::from_secs(1)).with_jitter(Jitter::Extra(0.5));
        Self { environment, delays, poll: POLL }
    }

    /// Replaces the waits between attempts, and between questions whether a
    /// commit is done.
    #[must_use]
    pub fn with_waits(mut self, delays: Backoff, poll: Duration) -> Self {
        self.delays = delays;
        self.poll = poll;
        self
    }

    fn settings(&self, provider: &ProviderBlock) -> Result<PanosSettings> {
        PanosSettings::read(provider, &self.environment)
    }

    async fn commit_with_retries(&self, settings: &PanosSettings) -> Result<()> {
        let mut delays = self.delays.clone();
        let mut retries = 0;
        loop {
            match self.commit(settings).await {
                Err(error) if error.is_retryable() && retries < RETRIES => {
                    retries += 1;
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        retries,
                        "cannot commit; trying again"
                    );
                    sleep(delays.next_delay()).await;
                }
                ended => return ended,
            }
        }
    }

    /// Commits once, and waits until the firewall is done with it.
    async fn commit(&self, settings: &PanosSettings) -> Result<()> {
        let connection = Connection::open(settings).await?;
        let command = format!(
            "<commit><description>{DESCRIPTION}</description><partial><admin><member>{}</member>\
             </admin></partial></commit>",
            escaped(&settings.username)
        );
        let answer =
            connection.ask(&[("type", "commit"), ("action", "partial"), ("cmd", &command)]).await?;
        let Commit::Queued(job) = answer.commit()? else {
            tracing::info!(firewall = connection.address(), "there was nothing to commit");
            return Ok(());
        };
        self.done(&connection, job).await?;
        tracing::info!(firewall = connection.address(), job, "committed");
        Ok(())
    }

    async fn done(&self, connection: &Connection, job: u64) -> Result<()> {
        let command = format!("<show><jobs><id>{job}</id></jobs></show>");
        let deadline = Instant::now() + COMMIT_LIMIT;
        while Instant::now() < deadline {
            match connection.ask(&[("type", "op"), ("cmd", &command)]).await?.job()? {
                Job::Running => sleep(self.poll).await,
                Job::Succeeded => return Ok(()),
                Job::Failed(reason) => {
                    return Err(
                        connection.failure(format!("commit job {job} failed: {reason}"), true)
                    );
                }
            }
        }
        let problem = format!("commit job {job} did not end within {COMMIT_LIMIT:?}");
        Err(connection.failure(problem, true))
    }
}

#[async_trait]
impl Handler for PanosCommit {
    fn provider(&self) -> &'static str {
        "panos"
    }

    fn check(&self, provider: &ProviderBlock) -> Result<()> {
        self.settings(provider).map(drop)
    }

    async fn applied(&self, provider: &ProviderBlock, stop: &Stop) -> Result<()> {
        let settings = self.settings(provider)?;
        tokio::select! {
            ended = self.commit_with_retries(&settings) => ended,
            reason = stop.stopped() => Err(Error::Interrupted { reason }),
        }
    }
}

/// The text as the content of an XML element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
