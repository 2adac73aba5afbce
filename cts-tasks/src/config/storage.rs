//! The block `storage`: where the state of a single instance is kept.

use std::path::PathBuf;

use super::{
    client::non_empty,
    decode::{Findings, TypedBlock, TypedBlocks},
    environment::Environment,
    raw::{RawFileStorage, decode_typed},
};

/// Storage of a single instance, which outlives the process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// `storage "file" { path = "…" }`: a [`crate::FileStore`].
    File {
        /// The file; a relative one starts at the process's working directory.
        path: PathBuf,
    },
}

/// Checks the block. A later file's wins.
pub(super) fn finalize(
    raw: Option<&TypedBlocks>,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<Storage> {
    let raw = raw?;
    for (_, place) in &raw.odd {
        findings.error_help(
            "storage: expected one kind of storage",
            place.clone(),
            "write storage \"file\" { path = \"…\" }",
        );
    }
    let block = raw.blocks.last()?;
    if block.label != "file" {
        findings.error_help(
            format!("unsupported storage: {}", block.label),
            block.place.clone(),
            "use storage \"file\" for a single instance; a high_availability block has a storage \
             of its own",
        );
        return None;
    }
    file(block, environment, findings)
}

fn file(block: &TypedBlock, environment: &Environment, findings: &mut Findings) -> Option<Storage> {
    let raw: RawFileStorage = decode_typed(&block.body, findings)?;
    let path = non_empty(raw.path.as_ref());
    if path.is_none() && !raw.invalid.contains(&"path") {
        findings.error_help(
            "storage.file: path is required",
            raw.place.or_else(|| block.place.clone()),
            "name the file that keeps the state, such as \"/var/lib/cts/state.json\"",
        );
    }
    path.map(|path| Storage::File { path: environment.resolve(&path) })
}
