//! The controllers and what they stand on, as a user sees them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[cfg(feature = "aws-sdk")]
mod aws;
