#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "aws-sdk")]
pub mod aws;
mod error;
pub mod secret_store;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, Result};
pub use secret_store::SecretStore;
pub use task::TaskSource;
