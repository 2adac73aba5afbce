//! Runs the guide of `docs/guide`: every block of code is checked or run, every link leads
//! somewhere, and what the reference says is what the code has.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    reason = "tests, which put documents together"
)]

mod book;
mod checks;
mod html;
mod links;
mod markdown;
mod package;
mod programs;
mod reference;
mod session;
mod wildcard;
