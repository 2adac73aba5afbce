//! The entry for the engine: `driver "terraform-cloud"` in a configuration becomes a factory, and
//! that a driver for each task.

use std::sync::Arc;

use async_trait::async_trait;
use consul_watch::error_chain;
use cts_driver_terraform::dynamic::Keeper;
use cts_tasks::{
    ConfigValue, Diagnostic, Driver, DriverFactory, DriverKind, DriverSettings, Error as TaskError,
    Finding, Result, Task, Verdict,
};

use secrecy::SecretString;

use crate::{
    Client, Platform, Settings, TokenSource, connection::Connection, driver::TfcDriver, settings,
    types::Server,
};

/// Driver kind that claims `driver "terraform-cloud"`: runs tasks in HCP Terraform or Terraform
/// Enterprise.
///
/// ```
/// use std::path::Path;
/// use cts_driver_tfc::TfcKind;
/// use cts_tasks::{ConfigValue, ConsulConfig, DriverKind, DriverSettings};
///
/// let body = ConfigValue::from(serde_json::json!({
///     "organization": "my-org", "token": "a team's token", "required_providers": {},
/// }));
/// let consul = ConsulConfig::default();
/// let mut settings = DriverSettings::new(&consul, Path::new("/srv"));
/// settings.body = Some(&body);
/// assert!(TfcKind::default().configure(settings, &mut Vec::new()).is_ok());
/// ```
#[derive(Debug, Clone, Default)]
pub struct TfcKind {
    platform: Option<Arc<dyn Platform>>,
}

impl TfcKind {
    /// Creates a kind whose drivers reach the platform by other means than sockets.
    pub fn with_platform(platform: Arc<dyn Platform>) -> Self {
        Self { platform: Some(platform) }
    }
}

impl DriverKind for TfcKind {
    fn label(&self) -> &'static str {
        "terraform-cloud"
    }

    fn task_blocks(&self) -> &'static [&'static str] {
        &["terraform_cloud_workspace", "terraform_version"]
    }

    fn required_in_tasks(&self) -> &'static [&'static str] {
        &["module"]
    }

    fn task_block_schema(&self, block: &str) -> Option<serde_json::Value> {
        settings::task_block_schema(block)
    }

    /// Variables of the workspace, of the category `env`, can have any name.
    fn refused_env(&self, _name: &str, _body: Option<&ConfigValue>) -> Option<String> {
        None
    }

    fn dynamic_fields(&self) -> &'static [&'static str] {
        &["token"]
    }

    fn secret_fields(&self) -> &'static [&'static str] {
        &["token"]
    }

    fn configure(
        &self,
        settings: DriverSettings<'_>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        let settings = Settings::read(settings, warnings)?;
        Ok(Arc::new(TfcFactory::new(settings, self.platform.clone())))
    }
}

/// Factory of the drivers of all tasks, which share one client.
#[derive(Debug, Clone)]
pub struct TfcFactory {
    connection: Arc<Connection>,
    platform: Option<Arc<dyn Platform>>,
    /// Keeps alive what dynamic values need, from the start on.
    keeper: Arc<Keeper>,
}

/// Token of the settings, read again at the place that it came from.
#[derive(Debug)]
struct SettingsToken(Settings);

#[async_trait]
impl TokenSource for SettingsToken {
    async fn token(&self) -> crate::Result<SecretString> {
        self.0.renewed_token().await
    }
}

impl TfcFactory {
    /// Creates a factory with these settings; over sockets if `platform` is `None`.
    pub fn new(settings: Settings, platform: Option<Arc<dyn Platform>>) -> Self {
        Self { connection: Arc::new(Connection::new(settings)), platform, keeper: Arc::default() }
    }
}

impl TfcFactory {
    /// Connects to the platform, and finds the organization there.
    async fn reach(&self) -> Result<(Client, Server)> {
        let settings = &self.connection.settings;
        let (options, token) = (settings.client_options(), settings.current_token().await?);
        let client = match &self.platform {
            Some(platform) => Client::with_platform(Arc::clone(platform), options, token),
            None => Client::new(options, token)?,
        };
        // A token that the operator or Vault replaced is found after a 401, without a restart.
        let client = client.with_token_source(Arc::new(SettingsToken(settings.clone())));
        // Before the organization: an unreachable host is another mistake than a wrong name.
        let server = client.ping().await?;
        let organization = settings.organization();
        let problem = match client.has_organization(organization).await {
            Ok(true) => None,
            Ok(false) => Some(format!(
                "organization \"{organization}\" was not found at {}, or the token may not see it",
                client.host()
            )),
            // For the operator to fix; asking again gains nothing.
            Err(error) if error.status().is_some_and(|status| status.as_u16() == 401) => {
                Some(format!("the token is not known at {}: {error}", client.host()))
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(message) = problem {
            return Err(TaskError::Driver { message, retryable: false, source: None });
        }
        Ok((client, server))
    }
}

#[async_trait]
impl DriverFactory for TfcFactory {
    /// Asks what a start asks: the platform, and the organization with this token.
    async fn check(&self) -> Vec<Finding> {
        let organization = self.connection.settings.organization();
        let (verdict, detail) = match self.reach().await {
            Ok((client, server)) => {
                let (host, product) = (client.host(), server.product);
                (Verdict::Ok, format!("{product} at {host} has the organization {organization}"))
            }
            Err(error) => (Verdict::Missing, error_chain(&error)),
        };
        vec![Finding::new("driver terraform-cloud", verdict, detail)]
    }

    async fn start(&self) -> Result<()> {
        let (client, server) = self.reach().await?;
        tracing::info!(
            host = %client.host(),
            organization = self.connection.settings.organization(),
            product = server.product,
            api = server.api_version,
            "connected to the platform"
        );
        // Last, so that drivers have a client only of a platform that works.
        self.connection.connect(client, server);
        self.keeper.start(self.connection.settings.values());
        Ok(())
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        let driver = TfcDriver::new(task.clone(), Arc::clone(&self.connection));
        Ok(Arc::new(driver?))
    }
}
