//! The numbers of the format of an export.

/// The first bytes of an export.
pub(super) const MAGIC: &[u8; 8] = b"RESOURCE";
/// The version of the format, the byte after those.
pub(super) const FORMAT: u8 = 1;
/// The length of the last frame.
pub(super) const END: u32 = u32::MAX;
/// Bytes before a payload.
pub(super) const FRAME_HEAD: usize = 8;
/// The most that one resource may have, encoded: 256 MiB.
pub(super) const MOST_BYTES: u32 = 256 << 20;
