//! Keeps the ACL tokens, policies and auth methods of Consul in line with the running ECS tasks.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod arn;
#[cfg(feature = "aws-sdk")]
pub mod aws;
mod change;
mod consul;
mod controller;
mod error;
pub mod login_tokens;
mod mesh_task;
mod outage;
#[cfg(feature = "program")]
pub mod program;
mod reconciler;
mod report;
mod rules;
pub mod secret_store;
mod service_name;
pub mod service_tokens;
pub mod task;
pub mod telemetry;
mod tenancy;
#[cfg(feature = "testing")]
pub mod testing;
mod token_ids;
mod undescribed;
mod writer;

pub use change::{Action, Change, Object};
pub use consul::Consul;
pub use controller::{Controller, ControllerOptions};
pub use error::{Error, Result};
pub use login_tokens::{LoginTokenSettings, LoginTokens, Registration};
pub use reconciler::Reconciler;
pub use report::Report;
pub use secret_store::{FileSecrets, MemorySecrets, SecretStore};
pub use service_tokens::{ServiceTokenSettings, ServiceTokens, TokenRights};
pub use task::TaskSource;
pub use tenancy::partition;
pub use writer::Writer;

#[doc(no_inline)]
pub use consul_watch::{CancellationToken, SecretString, async_trait};
