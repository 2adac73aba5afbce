//! The errors of moving resources.

use std::io;

use super::format::{FORMAT, MOST_BYTES};
use crate::backend;

/// Why resources could not be moved. When one of these comes from [`import`](super::import),
/// nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream is something else.
    #[error("this is no export of resources: it does not begin with RESOURCE")]
    NotAnExport,
    /// The stream was made by a later version of this crate.
    #[error("this export has format {found}, and only format {FORMAT} is known here")]
    Format {
        /// The format of the stream.
        found: u8,
    },
    /// The stream ends too early.
    #[error("the export ends at byte {at}, after {resources} resources, before it is complete")]
    Truncated {
        /// Length of the stream in bytes.
        at: u64,
        /// Number of resources before its end.
        resources: u64,
    },
    /// The stream is not what was exported.
    #[error("the export is damaged at byte {at}, after {resources} resources: {what}")]
    Damaged {
        /// Offset of the bad frame in bytes.
        at: u64,
        /// Number of resources before it.
        resources: u64,
        /// The damage.
        what: String,
    },
    /// The second reading gave something else than the first.
    #[error("the export changed while it was read")]
    Changed,
    /// A version is too high for others to come after it.
    #[error("version {version} leaves no room for those to come")]
    VersionTooHigh {
        /// The version.
        version: u64,
    },
    /// A resource is too large for the format.
    #[error("{id} has {bytes} bytes, and {MOST_BYTES} is the most that can be exported")]
    TooLarge {
        /// Id of the resource.
        id: String,
        /// Encoded size in bytes.
        bytes: usize,
    },
    /// The stream could not be read.
    #[error("the export cannot be read")]
    Read(#[source] io::Error),
    /// A backend failed.
    #[error(transparent)]
    Backend(#[from] backend::Error),
}

/// The result of moving resources.
pub type Result<T, E = Error> = std::result::Result<T, E>;
