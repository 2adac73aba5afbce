//! Integration tests of the crate.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod api;
mod api_create;
mod api_tasks;
mod commands;
mod conditions;
mod config;
mod engine;
mod guards;
mod registration;
mod scene;
mod stores;
mod triggers;
