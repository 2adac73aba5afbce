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
mod authority;
mod client;
mod commands;
mod conditions;
mod config;
mod document;
mod drift;
mod drivers;
mod engine;
mod guards;
mod registration;
mod reload;
mod removal;
mod scene;
mod stores;
mod triggers;
