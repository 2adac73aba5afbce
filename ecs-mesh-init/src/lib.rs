//! Joins tasks of Amazon ECS to a Consul service mesh, and takes them out of it at their end.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod config;
pub mod dataplane;
pub mod entrypoint;
mod error;
mod files;
pub mod health_sync;
mod json;
pub mod login;
pub mod mesh_init;
pub mod metadata;
pub mod net_dial;
#[cfg(feature = "program")]
pub mod program;
pub mod redirect;
pub mod registration;
pub mod resolv_conf;
pub mod service_defaults;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod vars;
mod violation;

pub use config::Config;
pub use error::{Error, Result};
pub use health_sync::HealthSync;
pub use mesh_init::{ControlPlane, MeshInit};
pub use vars::Vars;

#[doc(no_inline)]
pub use consul_watch::{CancellationToken, SecretString, async_trait};
