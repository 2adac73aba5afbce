//! The Terraform Cloud driver of Consul-Terraform-Sync: runs tasks in HCP Terraform and Terraform Enterprise.

#![forbid(unsafe_code)]

mod archive;
mod client;
mod connection;
mod document;
mod driver;
mod error;
mod halt;
mod hostname;
mod http_platform;
mod id;
mod kind;
mod limiter;
mod log;
mod module;
mod plan_json;
mod platform;
mod poll;
mod runs;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
pub mod types;
mod variables;
mod workspace;

pub use client::{Client, ClientOptions, RetryOptions};
pub use driver::TfcDriver;
pub use error::{Error, Result};
pub use hostname::Hostname;
pub use http_platform::{HttpPlatform, TlsOptions};
pub use kind::{TfcFactory, TfcKind};
pub use platform::{ExchangeError, Platform};
pub use settings::{Settings, WorkspaceBlock, task_block_schema};
