//! The Terraform driver of Consul-Terraform-Sync: generates the root module of
//! a task, and runs `terraform` or `tofu` on it.
//!
//! Start with [`RootModule`] to generate files, and with `TerraformKind` to run
//! tasks inside the engine of [`cts_tasks`].
//!
//! ```
//! use cts_driver_terraform::{Backend, RootModule};
//! use cts_tasks::{ServiceInstance, Task, TaskInputs};
//! use serde_json::json;
//!
//! // Usually read from a configuration file.
//! let task: Task = serde_json::from_value(json!({
//!     "name": "web", "description": "rules for the web servers", "enabled": true,
//!     "module": "./modules/rules", "version": null, "providers": [], "variables": {"zone": "a"},
//!     "buffer_period": "Disabled", "working_dir": "sync-tasks/web", "module_inputs": [],
//!     "driver_blocks": {}, "condition": {"Services": {"use_as_module_input": true, "services":
//!         {"Matching": {"regexp": "^web", "datacenter": "", "namespace": "", "filter": "",
//!             "cts_user_defined_meta": {}}}}},
//! }))?;
//! let root = RootModule::builder(&task)
//!     .base_dir("/srv/cts")
//!     .backend(Backend::new("local", Default::default())?)
//!     .build();
//! root.check()?;
//! for file in root.files() {
//!     println!("{}: {} bytes", file.name, file.content.len());
//! }
//!
//! let mut inputs = TaskInputs::default();
//! let instance = ServiceInstance { id: "web-1".into(), ..Default::default() };
//! inputs.services = Some(vec![instance.into()]);
//! assert!(root.tfvars(&inputs)?.content.contains("\n  \"web-1\" = {\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `cli` (default): the seam `Terraform`, its implementation over the
//!   command, and the driver on it. It brings `settings`.
//! - `settings`: the block `driver "terraform"` as [`Settings`], a [`FilesKind`] with
//!   which a loader takes it, and the dynamic values of providers.
//! - `download`: installs a missing Terraform from a release server, where the
//!   configuration says `install = true`.
//! - `panos`: commits on a Palo Alto Networks firewall after an apply, for
//!   providers with `auto_commit = true`.
//! - `testing`: a tool that follows a script.
//! - `vault`: dynamic values of providers from Vault, or from `OpenBao`.
//!
//! Without any only the root module remains: its files as text, and
//! [`RootModule::write`], which puts them in place.
//!
//! # What it promises
//!
//! Whatever a value holds, it reaches the module unchanged but for the
//! normalisation to NFC that Terraform applies, or the run fails by its name.
//! Secrets go by the environment or stand in files with mode 0600; never in
//! `main.tf`, logs, errors or arguments. Those of a backend go to `init` alone. Files are replaced atomically. A run
//! that was cut short anywhere, also by the death of the process, is followed
//! by one that converges.
#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod driver;
#[cfg(feature = "settings")]
pub mod dynamic;
mod error;
#[cfg(feature = "settings")]
mod files_kind;
#[cfg(feature = "cli")]
mod findings;
#[cfg(feature = "cli")]
mod handler;
#[cfg(feature = "cli")]
mod held;
#[cfg(feature = "cli")]
mod hex;
#[cfg(feature = "download")]
mod install;
#[cfg(feature = "cli")]
mod kind;
pub mod language;
#[cfg(feature = "settings")]
mod plan_values;
mod provider;
#[cfg(unix)]
mod replace;
#[cfg(feature = "settings")]
mod reserved_env;
mod root_module;
#[cfg(feature = "settings")]
mod settings;
#[cfg(feature = "cli")]
mod terraform;
#[cfg(feature = "testing")]
pub mod testing;
mod version;

pub use backend::Backend;
#[cfg(feature = "cli")]
pub use cli::{CliOptions, TerraformCli};
#[cfg(feature = "cli")]
pub use driver::TerraformDriver;
pub use error::{Error, Result};
#[cfg(feature = "settings")]
pub use files_kind::FilesKind;
#[cfg(feature = "cli")]
pub use handler::Handler;
#[cfg(feature = "panos")]
pub use handler::PanosCommit;
#[cfg(feature = "verify-signature")]
pub use install::ReleaseKeys;
#[cfg(feature = "download")]
pub use install::{Installer, ReleaseMirror, TerraformSource};
#[cfg(feature = "cli")]
pub use kind::{TerraformFactory, TerraformKind};
#[cfg(feature = "settings")]
pub use plan_values::{planned_action, planned_resources};
pub use root_module::{GeneratedFile, REQUIRED_VERSION, RootModule, RootModuleBuilder};
#[cfg(feature = "settings")]
pub use settings::Settings;
#[cfg(feature = "cli")]
pub use terraform::{
    ApplyOptions, Invocation, PlanOptions, RetryOnLock, ShownPlan, StateLock, Step, Terraform,
    Tool, ToolDiagnostic, Validation,
};
pub use version::{Product, Version, VersionConstraint};

/// The README, so that its code is compiled.
#[cfg(all(doctest, feature = "settings"))]
#[doc = include_str!("../README.md")]
struct Readme;
