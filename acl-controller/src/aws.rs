//! Tasks from Amazon ECS, secrets in AWS Secrets Manager.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use acl_controller::aws::{Aws, AwsSettings};
//!
//! let mut settings = AwsSettings::default();
//! settings.region = Some("eu-central-1".to_owned());
//! # settings.endpoint = Some("http://127.0.0.1:9".to_owned());
//! let aws = Aws::connect(settings).await?;
//! let tasks = aws.tasks("arn:aws:ecs:eu-central-1:123456789012:cluster/prod");
//! let secrets = aws.secrets();
//! # drop((tasks, secrets));
//! # Ok::<(), acl_controller::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod connection;
mod pages;
mod secrets;
mod tasks;

pub use connection::{Aws, AwsCredentials, AwsSettings};
pub use secrets::SecretsManager;
pub use tasks::EcsTasks;
