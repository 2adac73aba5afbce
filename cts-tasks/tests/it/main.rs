//! Integration tests.

mod config;
