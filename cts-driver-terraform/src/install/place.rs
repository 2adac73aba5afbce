//! Puts a downloaded program in its place in one step.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{Error, Result};

/// Puts the program into the directory, in one step.
pub(super) async fn put(directory: &Path, program: Bytes) -> Result<PathBuf> {
    let path = directory.join("terraform");
    let target = path.clone();
    let written = tokio::task::spawn_blocking(move || write(&target, &program)).await;
    let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map_err(|source| Error::File {
        action: "cannot install",
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

fn write(path: &Path, program: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    let mut new = tempfile::Builder::new().prefix(".terraform-new-").tempfile_in(directory)?;
    new.write_all(program)?;
    new.as_file().set_permissions(Permissions::from_mode(0o755))?;
    new.as_file().sync_all()?;
    // A program that is still open for writing cannot be run.
    new.into_temp_path().persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}
