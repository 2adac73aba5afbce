//! The files of a task's directory: their modes, and how they get there.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, BufRead as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::{Error, GeneratedFile, Result};

/// Mode of a task's directory.
const DIRECTORY: u32 = 0o750;

/// Mode of files without secrets.
const PUBLIC: u32 = 0o640;

/// Mode of files that can hold secrets.
const SECRET: u32 = 0o600;

/// Bytes of a file that are compared at a time.
const PIECE: usize = 64 * 1024;

/// Names of files that are not yet in place begin with this.
const UNFINISHED: &str = ".cts-new-";

/// Files that stand only when the task has variables.
const OPTIONAL: [&str; 2] = ["variables.module.tf", "variables.auto.tfvars"];

/// The directory of one task.
///
/// Source: Consul-Terraform-Sync 0.9, files and modes.
///
/// Deviation: every file is replaced atomically, and only when its content
/// changed; values, which can be secret, are readable by their owner only;
/// files of variables that are no more are removed.
pub(super) struct TaskFiles {
    directory: PathBuf,
}

impl TaskFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Makes the directory and its parents.
    pub(super) async fn create_directory(&self) -> Result<()> {
        let path = self.directory.clone();
        blocking(move || {
            let created = DirBuilder::new().recursive(true).mode(DIRECTORY).create(&path);
            created.map_err(|source| Error::File { action: "cannot create", path, source })
        })
        .await
    }

    /// Removes what an interrupted write left, and makes the file for the tool's log.
    pub(super) async fn prepare(&self, persist_log: bool) -> Result<()> {
        let directory = self.directory.clone();
        blocking(move || {
            remove_unfinished(&directory)?;
            if persist_log {
                let path = directory.join("terraform.log");
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(SECRET)
                    .open(&path)
                    .map_err(|source| Error::File { action: "cannot write", path, source })?;
            }
            Ok(())
        })
        .await
    }

    /// Writes all files of the root module, and removes those that it has no more.
    pub(super) async fn write_all(&self, files: &[GeneratedFile]) -> Result<()> {
        self.write(files).await?;
        let gone = OPTIONAL.iter().filter(|name| files.iter().all(|file| file.name != **name));
        for name in gone {
            let path = self.directory.join(name);
            match tokio::fs::remove_file(&path).await {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::File { action: "cannot remove", path, source });
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes files whose content changed.
    pub(super) async fn write(&self, files: &[GeneratedFile]) -> Result<()> {
        let (directory, files) = (self.directory.clone(), files.to_vec());
        blocking(move || files.iter().try_for_each(|file| replace(&directory, file))).await
    }

    /// Writes a file whose content changed, and gives it back: it can be long.
    pub(super) async fn write_one(&self, file: GeneratedFile) -> Result<GeneratedFile> {
        let directory = self.directory.clone();
        blocking(move || replace(&directory, &file).map(|()| file)).await
    }

    /// Returns `true` if the file stands there with exactly this content.
    pub(super) async fn holds(&self, file: &GeneratedFile) -> bool {
        let found = tokio::fs::read(self.directory.join(file.name)).await;
        found.is_ok_and(|found| found == file.content.as_bytes())
    }

    /// The workspace that the tool selected last, unless it is `default`.
    pub(super) async fn remembered_workspace(&self) -> Option<String> {
        let path = self.directory.join(".terraform/environment");
        let name = tokio::fs::read_to_string(path).await.ok()?.trim().to_owned();
        (!name.is_empty() && name != "default").then_some(name)
    }

    /// Makes the tool's own directory, and lets only its owner in and at the
    /// file in which the tool keeps the backend.
    pub(super) async fn close_tool_directory(&self) -> Result<()> {
        let path = self.directory.join(".terraform");
        blocking(move || {
            let backend = path.join("terraform.tfstate");
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o700)))
                .and_then(|()| {
                    if !backend.exists() {
                        return Ok(());
                    }
                    fs::set_permissions(&backend, Permissions::from_mode(SECRET))
                })
                .map_err(|source| Error::File { action: "cannot close", path, source })
        })
        .await
    }

    /// Whether values from Consul were ever written.
    pub(super) async fn has_inputs(&self) -> bool {
        tokio::fs::try_exists(self.directory.join("terraform.tfvars")).await.unwrap_or(false)
    }
}

/// Runs what blocks away from the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Process {
            action: "finish work with files",
            source: io::Error::other(error),
        }),
    }
}

fn remove_unfinished(directory: &Path) -> Result<()> {
    let failed = |source| Error::File { action: "cannot read", path: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let path = entry.path();
            fs::remove_file(&path).map_err(|source| Error::File {
                action: "cannot remove",
                path,
                source,
            })?;
        }
    }
    Ok(())
}

/// Puts the file in place in one step, unless it stands there already.
fn replace(directory: &Path, file: &GeneratedFile) -> Result<()> {
    let path = directory.join(file.name);
    let mode = if file.secret { SECRET } else { PUBLIC };
    let result =
        if stands(&path, file, mode) { Ok(()) } else { write(directory, &path, file, mode) };
    result.map_err(|source| Error::File { action: "cannot write", path, source })
}

fn stands(path: &Path, file: &GeneratedFile, mode: u32) -> bool {
    let metadata = fs::symlink_metadata(path);
    metadata.is_ok_and(|found| {
        found.is_file()
            && found.permissions().mode() & 0o777 == mode
            && u64::try_from(file.content.len()).is_ok_and(|length| length == found.len())
    }) && is_the_same(path, file.content.as_bytes()).unwrap_or(false)
}

/// Compares piece by piece: inputs of thousands of instances are megabytes.
fn is_the_same(path: &Path, mut content: &[u8]) -> io::Result<bool> {
    let mut found = io::BufReader::with_capacity(PIECE, fs::File::open(path)?);
    loop {
        let piece = found.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(content.is_empty());
        }
        let Some(rest) = content.strip_prefix(piece) else { return Ok(false) };
        content = rest;
        found.consume(length);
    }
}

fn write(directory: &Path, path: &Path, file: &GeneratedFile, mode: u32) -> io::Result<()> {
    let mut new = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory)?;
    new.write_all(file.content.as_bytes())?;
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    // So that no power failure leaves an empty file in place. That it leaves the
    // old one does no harm: every run writes what it needs before it begins.
    new.as_file().sync_all()?;
    new.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::TaskFiles;
    use crate::GeneratedFile;

    fn file(name: &'static str, content: &str) -> GeneratedFile {
        GeneratedFile::public(name, content.to_owned())
    }

    fn mode(path: &std::path::Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn files_have_their_modes_and_change_only_with_their_content() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let files = TaskFiles::new(directory.clone());
        files.create_directory().await.unwrap();
        files.prepare(true).await.unwrap();
        files.write(&[file("main.tf", "x")]).await.unwrap();
        files.write(&[GeneratedFile::secret("v.tfvars", "y".into())]).await.unwrap();
        assert_eq!(mode(&directory), 0o750);
        assert_eq!(mode(&directory.join("main.tf")), 0o640);
        assert_eq!(mode(&directory.join("v.tfvars")), 0o600);
        assert_eq!(mode(&directory.join("terraform.log")), 0o600);

        let inode = || std::fs::metadata(directory.join("main.tf")).unwrap().ino();
        let before = inode();
        files.write(&[file("main.tf", "x")]).await.unwrap();
        assert_eq!(inode(), before, "the same content is not written again");
        files.write(&[file("main.tf", "z")]).await.unwrap();
        assert_eq!(std::fs::read_to_string(directory.join("main.tf")).unwrap(), "z");
    }

    #[tokio::test]
    async fn what_is_no_more_and_what_was_not_finished_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path(".cts-new-abc"), "half").unwrap();
        let files = TaskFiles::new(directory.path().to_owned());
        files.prepare(false).await.unwrap();
        assert!(!path(".cts-new-abc").exists());
        files.write_all(&[file("main.tf", ""), file("variables.module.tf", "")]).await.unwrap();
        files.write_all(&[file("main.tf", "")]).await.unwrap();
        assert!(!path("variables.module.tf").exists());
    }

    #[tokio::test]
    async fn a_link_in_place_of_a_file_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, directory.path().join("main.tf")).unwrap();
        let files = TaskFiles::new(directory.path().to_owned());
        files.write(&[file("main.tf", "new")]).await.unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "kept");
    }

    #[tokio::test]
    async fn the_error_names_the_file() {
        let files = TaskFiles::new("/proc/no-such-place".into());
        let error = files.write(&[file("main.tf", "x")]).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot write /proc/no-such-place/main.tf");
    }
}
