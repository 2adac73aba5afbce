//! Integration tests of `resource-store`.

mod memory_backend;
mod topic_model;
