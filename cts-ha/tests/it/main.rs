//! Integration tests of the crate.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod arena;
mod clusters;
mod faults;
mod fencing;
mod locks;
mod place;
mod sessions;
mod shutdowns;
mod stores;
