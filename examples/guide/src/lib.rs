//! The Rust of `docs/guide`, compiled and run as documentation tests; `tests/it` checks and runs
//! the rest of it. There is nothing to use here.
