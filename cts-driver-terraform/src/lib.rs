//! The Terraform driver of Consul-Terraform-Sync.
#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod driver;
mod error;
#[cfg(feature = "cli")]
mod kind;
pub mod language;
mod provider;
mod root_module;
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
#[cfg(feature = "cli")]
pub use kind::{TerraformFactory, TerraformKind};
pub use root_module::{GeneratedFile, REQUIRED_VERSION, RootModule, RootModuleBuilder};
pub use settings::Settings;
#[cfg(feature = "cli")]
pub use terraform::{
    ApplyOptions, Invocation, Patient, PlanOptions, ShownPlan, Step, Terraform, Tool,
    ToolDiagnostic, Validation,
};
pub use version::{Product, Version, VersionConstraint};
