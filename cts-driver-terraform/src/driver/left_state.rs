//! Pushes the state that an earlier command could not save.
//!
//! A command that changed infrastructure and then cannot write the state to
//! the backend, which may just be away, writes it to a file in the directory
//! and fails. Until that file is pushed, the backend has an older state: a plan
//! compares with it, takes what was changed for what it was before, and leaves
//! it so. The tool itself never reads the file again (Terraform 1.11.4 and
//! `OpenTofu` 1.12.6, observed).

use std::{io, path::Path};

use cts_tasks::TaskName;

use crate::{Error, Invocation, Product, Result, Terraform};

/// The tool's file with a state that could not be saved.
const NAME: &str = "errored.tfstate";

/// Pushes the file of a directory to the selected workspace, and removes it.
///
/// The tool refuses a file of another lineage, or one that is older than what
/// the backend has; nothing is forced, and the file stays where it is. Cut short
/// anywhere, it can be called again: what the backend has already is pushed
/// once more without effect.
///
/// # Errors
///
/// [`Error::LeftState`] when the file could not be pushed.
pub(super) async fn push(
    terraform: &dyn Terraform,
    task: &TaskName,
    run: &Invocation,
) -> Result<()> {
    let path = run.directory.join(NAME);
    tracing::warn!(
        task.name = %task, state = %path.display(),
        "pushing the state that an earlier command could not save"
    );
    if let Err(source) = terraform.push_newer_state(&path, run).await {
        return Err(match source {
            Error::Interrupted { .. } => source,
            source => {
                let tool = match terraform.version().await {
                    Ok(tool) if tool.product == Product::OpenTofu => "tofu",
                    _ => "terraform",
                };
                Error::LeftState { path, tool, source: Box::new(source) }
            }
        });
    }
    tokio::fs::remove_file(&path).await.map_err(|source| Error::File {
        action: "cannot remove",
        path: path.clone(),
        source,
    })?;
    tracing::info!(
        task.name = %task, state = %path.display(),
        "pushed the state that an earlier command could not save, and removed the file"
    );
    Ok(())
}

/// Returns `true` if the directory has such a file.
///
/// # Errors
///
/// [`Error::File`] when that cannot be found out.
pub(super) async fn is_there(directory: &Path) -> Result<bool> {
    let path = directory.join(NAME);
    match tokio::fs::symlink_metadata(&path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::File { action: "cannot read", path, source }),
    }
}
