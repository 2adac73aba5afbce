//! The Terraform Cloud driver of Consul-Terraform-Sync: runs tasks in HCP Terraform and Terraform Enterprise.

#![forbid(unsafe_code)]

mod client;
mod document;
mod error;
mod hostname;
mod http_platform;
mod id;
mod limiter;
mod log;
mod platform;
pub mod types;

pub use client::{Client, ClientOptions, RetryOptions};
pub use error::{Error, Result};
pub use hostname::Hostname;
pub use http_platform::{HttpPlatform, TlsOptions};
pub use platform::{ExchangeError, Platform};
