#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod config;
mod error;

pub use config::Config;
pub use error::{Error, Result};
