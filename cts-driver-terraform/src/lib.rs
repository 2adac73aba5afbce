//! The Terraform driver of Consul-Terraform-Sync.
#![forbid(unsafe_code)]

mod backend;
mod error;
pub mod language;
mod provider;
mod root_module;
mod settings;
mod version;

pub use backend::Backend;
pub use error::{Error, Result};
pub use root_module::{GeneratedFile, REQUIRED_VERSION, RootModule, RootModuleBuilder};
pub use settings::Settings;
pub use version::{Product, Version, VersionConstraint};
