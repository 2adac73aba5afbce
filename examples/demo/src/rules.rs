//! The file that the demo's task writes, shown as differences.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The file of firewall rules, and what was in it when it was last shown.
pub(crate) struct Rules {
    path: PathBuf,
    shown: BTreeSet<String>,
}

impl Rules {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, shown: BTreeSet::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Prints the file with what is new and what is gone since the last time.
    pub(crate) fn show_changes(&mut self) -> io::Result<()> {
        let now: BTreeSet<String> =
            fs::read_to_string(&self.path)?.lines().map(str::to_owned).collect();
        for rule in self.shown.union(&now) {
            let mark = match (self.shown.contains(rule), now.contains(rule)) {
                (false, _) => '+',
                (_, false) => '-',
                _ => ' ',
            };
            println!("  {mark} {rule}");
        }
        self.shown = now;
        Ok(())
    }
}
