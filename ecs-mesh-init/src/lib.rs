#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod config;
mod error;
mod json;
pub mod metadata;
pub mod registration;

pub use config::Config;
pub use error::{Error, Result};
