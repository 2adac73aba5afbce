//! Clocks that jump: a library gives each node a time of day of its own.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use consul_watch::testing::parts::Suite;

/// The clocks of nodes. Without a jump they go as that of the machine.
pub(crate) struct Clocks {
    library: OsString,
    folder: PathBuf,
    /// Which process each node is.
    processes: Mutex<HashMap<usize, u32>>,
}

impl Clocks {
    /// The clocks that are kept in this folder, if faketime is there. If not,
    /// the report says which case did not run.
    pub(crate) fn find(suite: Suite, case: &str, folder: &Path) -> Option<Self> {
        let part = suite.part("faketime", case)?;
        // What it would have a program load.
        let mut command = Command::new(&part.path);
        let said = command.args(["-m", "+0s", "printenv", "LD_PRELOAD"]).output().unwrap();
        let mut library = said.stdout;
        library.truncate(library.trim_ascii_end().len());
        assert!(said.status.success() && !library.is_empty(), "{}", part.path.display());
        Some(Self {
            library: OsString::from_vec(library),
            folder: folder.to_owned(),
            processes: Mutex::default(),
        })
    }

    fn file(&self, node: usize) -> PathBuf {
        self.folder.join(format!("clock-{node}"))
    }

    /// What a node has to be started with.
    pub(crate) fn environment(&self, node: usize) -> Vec<(&'static str, OsString)> {
        self.set(node, 0);
        let on = || OsStr::new("1").to_owned();
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file(node).into()),
            // The file is read each time.
            ("FAKETIME_NO_CACHE", on()),
            // Clocks that cannot be set do not jump, and files have their times.
            ("FAKETIME_DONT_FAKE_MONOTONIC", on()),
            ("NO_FAKE_STAT", on()),
        ]
    }

    /// Sets the clock of a node so many seconds before or after that of the
    /// machine.
    pub(crate) fn set(&self, node: usize, seconds: i64) {
        let (file, aside) = (self.file(node), self.folder.join("clock-aside"));
        // At once, so that no half of it is read.
        fs::write(&aside, format!("{seconds:+}\n")).unwrap();
        fs::rename(aside, file).unwrap();
    }

    /// From now on the process is that node.
    pub(crate) fn is(&self, process: Option<u32>, node: usize) {
        let mut processes = self.processes.lock().unwrap();
        let before = match process {
            Some(process) => processes.insert(node, process),
            None => processes.remove(&node),
        };
        if let Some(process) = before {
            forget(process);
        }
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        self.processes.lock().unwrap().values().copied().for_each(forget);
    }
}

/// Removes what the library made for a process, which does so itself if it is
/// not killed.
fn forget(process: u32) {
    for kind in ["faketime_shm_", "sem.faketime_sem_"] {
        let made = format!("/dev/shm/{kind}{process}");
        if let Err(error) = fs::remove_file(made) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}
