//! A Consul HTTP client whose watches are correct, shared and cheap.
#![forbid(unsafe_code)]

mod error;

pub use error::{BoxError, Error, Result};
