//! The files of a task's directory: their modes, and how they get there.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use cts_tasks::TaskInputs;

use crate::{
    Error, GeneratedFile, Result, RootModule,
    replace::{SECRET, UNFINISHED, create_directory, replace, write_all, write_inputs},
    root_module::TFVARS,
};

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
        blocking(move || create_directory(&path)).await
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
        let (directory, files) = (self.directory.clone(), files.to_vec());
        blocking(move || write_all(&directory, &files)).await
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
        blocking(move || write_inputs(&directory, &root, &inputs)).await
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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        sync::Arc,
    };

    use cts_tasks::{ServiceInstance, TaskInputs};

    use super::TaskFiles;
    use crate::{GeneratedFile, RootModule, replace::PIECE, root_module::TFVARS};

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
