//! Files that are read again when they change.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use consul_watch::BoxError;
use tokio_util::sync::CancellationToken;

/// Interval between two looks at the files.
const LOOK: Duration = Duration::from_secs(5);

/// Calls `changed` each time that a file was changed, until `stop`.
pub(super) async fn follow(
    files: Vec<PathBuf>,
    stop: CancellationToken,
    mut changed: impl FnMut(),
) {
    // Time and length tell a changed one.
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let stamps =
        || -> Vec<Option<(SystemTime, u64)>> { files.iter().map(|path| stamp(path)).collect() };
    let mut shown = stamps();
    let mut looks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = stop.cancelled() => return,
        }
        let now = stamps();
        if now != shown {
            shown = now;
            changed();
        }
    }
}

/// Logs what became of files that were read again.
pub(super) fn told(what: &str, replaced: Result<(), BoxError>) {
    match replaced {
        Ok(()) => tracing::info!("{what} were read again"),
        Err(error) => tracing::error!(
            error = &*error as &dyn std::error::Error,
            "{what} cannot be used; what was read before stays in use"
        ),
    }
}

/// Reads a file.
///
/// # Errors
///
/// With the name of the file.
pub(super) fn read(path: &Path) -> Result<String, BoxError> {
    let text = std::fs::read_to_string(path);
    Ok(text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?)
}
