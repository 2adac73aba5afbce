//! The files of a task's directory: their modes, and how they get there.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, BufRead as _, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use cts_tasks::TaskInputs;
use tempfile::NamedTempFile;

use crate::{Error, GeneratedFile, Result, RootModule, root_module::TFVARS};

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

    /// Writes `terraform.tfvars`, if its content changed. With thousands of instances it is
    /// megabytes, which are never in memory as a whole.
    pub(super) async fn write_inputs(&self, root: &RootModule, inputs: &TaskInputs) -> Result<()> {
        let (directory, root, inputs) = (self.directory.clone(), root.clone(), inputs.clone());
        blocking(move || {
            let path = directory.join(TFVARS);
            let failed =
                |source| Error::File { action: "cannot write", path: path.clone(), source };
            let mut file = InPieces::at(&directory, &path);
            root.tfvars_pieces(&inputs, |piece| file.add(piece.as_bytes()).map_err(failed))?;
            file.finish().map_err(failed)
        })
        .await
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

    /// Returns `true` if values from Consul were ever written.
    pub(super) async fn has_inputs(&self) -> bool {
        tokio::fs::try_exists(self.directory.join(TFVARS)).await.unwrap_or(false)
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
    Standing::open(path, mode).is_some_and(|mut standing| {
        standing.goes_on_with(file.content.as_bytes()) && standing.ends()
    })
}

/// A secret file that comes piece by piece. As long as it is the one that stands in its
/// place, nothing is written.
struct InPieces<'a> {
    directory: &'a Path,
    path: &'a Path,
    /// The file in its place, if there is one with the right mode.
    standing: Option<Standing>,
    /// Bytes of it that have come.
    same: u64,
    /// The file in place of it, from the first difference on.
    new: Option<NamedTempFile>,
}

impl<'a> InPieces<'a> {
    fn at(directory: &'a Path, path: &'a Path) -> Self {
        Self { directory, path, standing: Standing::open(path, SECRET), same: 0, new: None }
    }

    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        if let Some(new) = &mut self.new {
            return new.write_all(piece);
        }
        if self.standing.as_mut().is_some_and(|standing| standing.goes_on_with(piece)) {
            self.same += u64::try_from(piece.len()).map_err(io::Error::other)?;
            return Ok(());
        }
        self.begin()?.write_all(piece)
    }

    /// Begins a new file with what is the same in both.
    fn begin(&mut self) -> io::Result<&mut NamedTempFile> {
        let mut new = unfinished(self.directory)?;
        if self.same > 0 {
            let copied = io::copy(&mut fs::File::open(self.path)?.take(self.same), &mut new)?;
            if copied != self.same {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.new.insert(new))
    }

    fn finish(mut self) -> io::Result<()> {
        if self.new.is_none() {
            if self.standing.as_mut().is_some_and(Standing::ends) {
                return Ok(());
            }
            self.begin()?;
        }
        self.new.map_or(Ok(()), |new| put(new, self.path, SECRET))
    }
}

/// A file that stands in its place, compared piece by piece.
struct Standing(io::BufReader<fs::File>);

impl Standing {
    /// Opens the file; `None` if there is none with this mode.
    fn open(path: &Path, mode: u32) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        if !found.is_file() || found.permissions().mode() & 0o777 != mode {
            return None;
        }
        Some(Self(io::BufReader::with_capacity(PIECE, fs::File::open(path).ok()?)))
    }

    /// Returns `true` if the next bytes are these. A file that cannot be read differs.
    fn goes_on_with(&mut self, mut content: &[u8]) -> bool {
        while !content.is_empty() {
            let Ok(found) = self.0.fill_buf() else { return false };
            let length = found.len().min(content.len());
            if length == 0 || found.get(..length) != content.get(..length) {
                return false;
            }
            self.0.consume(length);
            content = content.get(length..).unwrap_or_default();
        }
        true
    }

    /// Returns `true` if no further bytes follow.
    fn ends(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

fn write(directory: &Path, path: &Path, file: &GeneratedFile, mode: u32) -> io::Result<()> {
    let mut new = unfinished(directory)?;
    new.write_all(file.content.as_bytes())?;
    put(new, path, mode)
}

fn unfinished(directory: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory)
}

/// Puts a written file in its place.
fn put(new: NamedTempFile, path: &Path, mode: u32) -> io::Result<()> {
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    // So that no power failure leaves an empty file in place. That it leaves the
    // old one does no harm: every run writes what it needs before it begins.
    new.as_file().sync_all()?;
    new.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        sync::Arc,
    };

    use cts_tasks::{ServiceInstance, TaskInputs};

    use super::{PIECE, TaskFiles};
    use crate::{GeneratedFile, RootModule, root_module::TFVARS};

    fn file(name: &'static str, content: &str) -> GeneratedFile {
        GeneratedFile::public(name, content.to_owned())
    }

    fn mode(path: &std::path::Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn inputs(ports: &[i64]) -> TaskInputs {
        let instance = |(number, port): (usize, &i64)| {
            Arc::new(ServiceInstance {
                id: format!("web-{number}"),
                port: *port,
                ..ServiceInstance::default()
            })
        };
        let mut inputs = TaskInputs::default();
        inputs.services = Some(ports.iter().enumerate().map(instance).collect());
        inputs
    }

    /// The file is several pieces long, and differs in the first, in another, or only in length.
    #[tokio::test]
    async fn inputs_are_replaced_when_they_differ_and_only_then() {
        let directory = tempfile::tempdir().unwrap();
        let task = serde_json::from_value(serde_json::json!({
            "name": "t", "description": "", "enabled": true, "module": "./m", "version": null,
            "providers": [], "variables": {}, "buffer_period": "Disabled",
            "working_dir": "w", "module_inputs": [], "driver_blocks": {},
            "condition": {"Services": {"use_as_module_input": true, "services": {"Matching": {
                "regexp": "", "datacenter": "", "namespace": "", "filter": "",
                "cts_user_defined_meta": {},
            }}}},
        }));
        let root = RootModule::builder(&task.unwrap()).build();
        let files = TaskFiles::new(directory.path().to_owned());
        let path = directory.path().join(TFVARS);
        let ports = vec![80; 600];
        let changed = |at: usize| {
            let mut ports = ports.clone();
            ports[at] = 81;
            ports
        };
        let shorter = ports[..599].to_vec();
        let steps = [ports.clone(), changed(0), changed(300), changed(599), shorter, ports.clone()];
        for ports in steps {
            let inputs = inputs(&ports);
            let expected = root.tfvars(&inputs).unwrap().content;
            assert!(expected.len() > 3 * PIECE);
            files.write_inputs(&root, &inputs).await.unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
            let before = std::fs::metadata(&path).unwrap();
            files.write_inputs(&root, &inputs).await.unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().ino(), before.ino(), "nothing to write");
            assert_eq!(mode(&path), 0o600);
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        files.write_inputs(&root, &inputs(&ports)).await.unwrap();
        assert_eq!(mode(&path), 0o600, "a file for everyone is replaced");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
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
