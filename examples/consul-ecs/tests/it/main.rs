//! The built program, as an operator uses it.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod acl;
mod ecs;
mod mesh;
