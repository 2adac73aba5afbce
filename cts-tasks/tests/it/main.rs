//! Integration tests of the crate.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "fixtures of tests"
)]

mod api;
mod api_access;
mod api_create;
mod api_drawn;
mod api_events;
mod api_limits;
mod api_on_consul;
mod api_plans;
mod api_server;
mod api_tasks;
mod authority;
mod both;
mod changes_on_consul;
mod client;
mod commands;
mod conditions;
mod config;
mod defects;
mod document;
mod drift;
mod driver_changes;
mod drivers;
mod elsewhere;
mod engine;
mod guards;
mod inputs;
mod limits;
mod measures;
mod registration;
mod reload;
mod removal;
mod scene;
mod setbacks;
mod soak;
mod stores;
mod triggers;
mod triggers_on_consul;
mod ui;
mod upstream;
