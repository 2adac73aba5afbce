#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod config;
pub mod dataplane;
mod error;
mod files;
mod json;
pub mod login;
pub mod mesh_init;
pub mod metadata;
pub mod redirect;
pub mod registration;
pub mod resolv_conf;
pub mod service_defaults;
mod vars;

pub use config::Config;
pub use error::{Error, Result};
pub use mesh_init::MeshInit;
pub use vars::Vars;
