//! Test doubles of this crate's own seams.

mod metadata;

pub use metadata::TestTaskMetadata;
