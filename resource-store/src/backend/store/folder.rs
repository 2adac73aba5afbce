//! Folders that hold a backend's files.

use std::{fs::File, io, path::Path};

/// Waits until the names in the folder around `path` are on the disk: a file that was synced may
/// otherwise be gone after a crash, or have its old name. Blocks.
pub(crate) fn sync_around(path: &Path) -> io::Result<()> {
    // A path of one part has an empty parent, which is no folder that can be opened.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_names(parent.unwrap_or(Path::new(".")))
}

/// Waits until the names in a folder are on the disk. Blocks.
pub(crate) fn sync_names(folder: &Path) -> io::Result<()> {
    // Windows has no handle of a folder to sync.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
