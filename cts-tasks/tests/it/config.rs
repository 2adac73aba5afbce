//! Configuration: every case of the specification, and bad input of every kind.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod loading;
mod mistakes;
mod properties;
mod rendering;
mod settings;
mod shapes;
mod support;
mod tasks;
mod triggers;
