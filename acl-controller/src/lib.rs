#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
pub mod secret_store;
pub mod task;

pub use error::{Error, Result};
pub use secret_store::SecretStore;
pub use task::TaskSource;
