//! Connection settings of the AWS clients: region, endpoint, credentials, limits.

use std::{fmt, time::Duration};

use aws_config::{
    AppName, BehaviorVersion, Region, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_sdk_secretsmanager::config::{Credentials, SharedCredentialsProvider};
use secrecy::{ExposeSecret as _, SecretString};

use super::{EcsTasks, SecretsManager};
use crate::{Error, Result};

/// Application name in the user agent (`app/controller`), as upstream sends it.
const APP_NAME: &str = "controller";

/// Connection settings of the AWS clients: region, endpoint, credentials, limits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AwsSettings {
    /// AWS region, such as `eu-central-1`. `None` takes the one of AWS's tools: `AWS_REGION`, the
    /// profile, the instance.
    pub region: Option<String>,
    /// URL that every call is sent to instead of AWS's own endpoints. `None` takes the one of AWS's
    /// tools: `AWS_ENDPOINT_URL` and its relatives, else AWS.
    pub endpoint: Option<String>,
    /// Credentials of the calls. `None` takes those of AWS's tools: `AWS_ACCESS_KEY_ID`, the
    /// profile, a web identity, the role of the ECS task, the role of the instance. These are
    /// refreshed before they expire.
    pub credentials: Option<AwsCredentials>,
    /// Number of attempts of a call that is throttled or gets no valid response, with growing
    /// delays in between; at least 1, by default 3.
    pub attempts: u32,
    /// Time for which a call that is still throttled after these attempts is repeated, every 1 to 8
    /// seconds; by default one minute.
    ///
    /// A burst of new tasks takes longer than the attempts last: Secrets Manager accepts 50 writes
    /// a second.
    pub throttle_patience: Duration,
    /// Time limit of one attempt; by default 10 seconds.
    pub attempt_timeout: Duration,
}

impl Default for AwsSettings {
    fn default() -> Self {
        Self {
            region: None,
            endpoint: None,
            credentials: None,
            attempts: 3,
            throttle_patience: Duration::from_mins(1),
            attempt_timeout: Duration::from_secs(10),
        }
    }
}

/// Access keys that do not change. `Debug` does not show the secrets.
#[derive(Debug, Clone)]
pub struct AwsCredentials {
    /// Id of the access key.
    pub access_key_id: String,
    /// Secret of the access key.
    pub secret_access_key: SecretString,
    /// Session token of temporary keys.
    pub session_token: Option<SecretString>,
}

/// Connection to AWS, from which task sources and secret stores are created.
#[derive(Debug, Clone)]
pub struct Aws {
    config: SdkConfig,
    throttle_patience: Duration,
}

impl Aws {
    /// Loads AWS's own configuration for what the settings leave open.
    ///
    /// Sends nothing yet, unless region or credentials have to be read from the machine's metadata
    /// service.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] without a region, or with zero attempts.
    pub async fn connect(settings: AwsSettings) -> Result<Self> {
        if settings.attempts == 0 {
            return Err(wrong("attempts", &"it is 0; it has to be 1 or more"));
        }
        let app_name = AppName::new(APP_NAME).map_err(|error| wrong("app name", &error))?;
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(settings.attempt_timeout)
            // A dead endpoint shows itself while connecting; the rest of the attempt is for the
            // response.
            .connect_timeout(settings.attempt_timeout.min(Duration::from_secs(3)))
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .app_name(app_name)
            .retry_config(RetryConfig::standard().with_max_attempts(settings.attempts))
            .timeout_config(timeouts);
        if let Some(region) = settings.region {
            loader = loader.region(Region::new(region));
        }
        if let Some(endpoint) = settings.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(credentials) = settings.credentials {
            loader = loader.credentials_provider(provider(&credentials));
        }
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(wrong("region", &"none is known; set AWS_REGION"));
        }
        Ok(Self { config, throttle_patience: settings.throttle_patience })
    }

    /// Returns the tasks of a cluster, given by name or ARN.
    pub fn tasks(&self, cluster: impl Into<String>) -> EcsTasks {
        EcsTasks::new(
            aws_sdk_ecs::Client::new(&self.config),
            cluster.into(),
            self.throttle_patience,
        )
    }

    /// Returns the secrets of the account in the region.
    pub fn secrets(&self) -> SecretsManager {
        SecretsManager::new(
            aws_sdk_secretsmanager::Client::new(&self.config),
            self.throttle_patience,
        )
    }
}

fn wrong(setting: &str, problem: &dyn fmt::Display) -> Error {
    Error::Config { setting: format!("AWS {setting}"), problem: problem.to_string() }
}

fn provider(credentials: &AwsCredentials) -> SharedCredentialsProvider {
    let session = credentials.session_token.as_ref().map(|token| token.expose_secret().to_owned());
    SharedCredentialsProvider::new(Credentials::new(
        &credentials.access_key_id,
        credentials.secret_access_key.expose_secret(),
        session,
        None,
        "settings",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_attempt_is_refused() {
        let settings = AwsSettings { attempts: 0, ..AwsSettings::default() };
        let error = Aws::connect(settings).await.unwrap_err();
        assert_eq!(error.to_string(), "AWS attempts: it is 0; it has to be 1 or more");
    }

    #[test]
    fn keys_are_not_shown() {
        let credentials = AwsCredentials {
            access_key_id: "AKIA".to_owned(),
            secret_access_key: SecretString::from("hush-1"),
            session_token: Some(SecretString::from("hush-2")),
        };
        let shown = format!("{credentials:?} {:?}", provider(&credentials));
        assert!(shown.contains("AKIA") && !shown.contains("hush"), "{shown}");
    }
}
