//! The Terraform Cloud driver of Consul-Terraform-Sync: runs tasks in HCP
//! Terraform and Terraform Enterprise.
//!
//! - [`TfcKind`] claims `driver "terraform-cloud"` in the configuration of
//!   [`cts_tasks`], and makes the drivers of its tasks.
//! - [`Client`] is the platform's API by itself: typed calls that keep below
//!   its rate limits, follow pages, and try again what may pass and is safe.
//! - [`Platform`] is the boundary to the network: one HTTP exchange.
//! - `testing` (feature `testing`) has an in-process Terraform Cloud.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! use std::{path::Path, sync::Arc};
//! use cts_driver_tfc::{TfcKind, testing::TestTfc};
//! use cts_tasks::{
//!     ApplyRequest, ConfigValue, ConsulConfig, DriverKind, DriverSettings, RunContext, TaskInputs,
//! };
//! # use cts_tasks::Task;
//! # let task: Task = serde_json::from_value(serde_json::json!({
//! #     "name": "web", "description": "", "enabled": true, "module": "org/rules/cts",
//! #     "version": null, "providers": [], "variables": {}, "buffer_period": "Disabled",
//! #     "working_dir": "sync-tasks/web", "module_inputs": [], "driver_blocks": {},
//! #     "condition": {"Schedule": {"cron": "@daily"}},
//! # })).expect("a task");
//!
//! // A program would register `TfcKind::default()`, and its files would say the rest.
//! let tfc = TestTfc::new();
//! let body = ConfigValue::from(serde_json::json!({
//!     "organization": TestTfc::ORGANIZATION, "token": TestTfc::TOKEN, "required_providers": {},
//! }));
//! let consul = ConsulConfig::default();
//! let mut settings = DriverSettings::new(&consul, Path::new("/srv"));
//! settings.body = Some(&body);
//! let kind = TfcKind::with_platform(Arc::new(tfc.clone()));
//! let factory = kind.configure(settings, &mut Vec::new()).expect("good settings");
//! factory.start().await?;
//!
//! let driver = factory.driver(&task)?;
//! let context = RunContext::default();
//! driver.prepare(&context).await?; // finds or makes the workspace, and uploads the module
//! driver.apply(ApplyRequest::Inputs(&TaskInputs::default()), &context).await?;
//! assert_eq!(tfc.runs("web").len(), 1);
//! # Ok::<(), cts_tasks::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a change gets there
//!
//! Data of Consul's goes by variables of the workspace, and so do values of
//! providers and of the task, as sensitive ones. The root module and a local
//! module go as an archive, which is the same to the byte for the same files
//! and is uploaded only when it changed. Then a run is queued, once: one that
//! seems to have failed is looked for before it is asked for again. It is
//! followed by its id.
//!
//! A plan that may have to be approved is such a run, created without
//! automatic apply; approving the plan confirms that run. A workspace without
//! automatic apply stays so, and a person confirms its runs at the platform.
//!
//! When the process stops, a run of ours that does not apply yet is ended;
//! when another process leads, it is left to that.
//!
//! # Features
//!
//! - `testing`: the module `testing`. Off by default.
//!
//! Source: Consul documentation, network drivers, HCP Terraform; HCP Terraform
//! API documentation.

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
mod mask;
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

pub use client::{Client, ClientOptions, RetryOptions, TokenSource};
pub use error::{Error, Result};
pub use hostname::Hostname;
pub use http_platform::{HttpPlatform, TlsOptions};
pub use kind::{TfcFactory, TfcKind};
pub use platform::{ExchangeError, Platform};
pub use settings::{Settings, WorkspaceBlock};

/// The README, so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
