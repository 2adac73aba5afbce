//! Doubles of this crate's own seams.

mod metadata;

pub use metadata::TestTaskMetadata;
