//! A small disk of the daemon's own, which can be filled.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use consul_watch::testing::parts::Suite;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
};

/// A filesystem in memory, in a mount namespace that lives as long as this.
pub(super) struct Disk {
    folder: PathBuf,
    holder: u32,
    _child: Child,
    /// The process that holds the namespace ends with its input.
    _input: ChildStdin,
}

impl Disk {
    /// Mounts it at this folder. Where no namespace can be made, the report says so.
    pub(super) async fn mount(suite: Suite, case: &str, folder: &Path) -> Option<Self> {
        const SCRIPT: &str =
            "mount -t tmpfs -o size=8m none \"$1\" && echo mounted && exec cat >/dev/null";
        let mut child = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", SCRIPT, "sh"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let mut lines = BufReader::new(child.stdout.take()?).lines();
        if lines.next_line().await.ok()?.as_deref() != Some("mounted") {
            suite.not_applicable("mount", case, "no mount namespace can be made here");
            return None;
        }
        let (holder, input) = (child.id()?, child.stdin.take()?);
        Some(Self { folder: folder.to_owned(), holder, _child: child, _input: input })
    }

    /// What a command has to be started through to see the disk, in this folder.
    pub(super) fn launcher(&self, folder: &Path) -> Vec<String> {
        let target = format!("--target={}", self.holder);
        let parts = ["nsenter", "--preserve-credentials", "--user", "--mount", &target, "--"];
        let folder = folder.display().to_string();
        let parts = parts.into_iter().chain(["env", "-C", &folder]);
        parts.map(str::to_owned).collect()
    }

    /// A path on the disk, as this process sees it.
    fn seen(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder));
        root.join(self.folder.strip_prefix("/").unwrap()).join(name)
    }

    /// Leaves no room.
    pub(super) fn fill(&self) {
        let mut ballast = File::create(self.seen("ballast")).unwrap();
        while ballast.write_all(&[0; 1024]).is_ok() {}
    }

    pub(super) fn free(&self) {
        fs::remove_file(self.seen("ballast")).unwrap();
    }
}
