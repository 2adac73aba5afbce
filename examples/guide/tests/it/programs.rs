//! The programs that the guide's commands call: ours, as they were just built, and the real
//! ones of `scripts/setup-tools`.

use std::{env, path::PathBuf, process::Command, sync::OnceLock};

use consul_watch::testing::parts::Suite;

use crate::book::root;

pub(crate) const SUITE: Suite = Suite("guide");

/// Packages whose programs the guide calls.
const PACKAGES: [&str; 3] = ["consul-terraform-sync", "consul-ecs", "resource-server"];
const PROGRAMS: [&str; 4] = ["consul-terraform-sync", "consul-ecs", "resource-server", "resource"];

/// Returns the folder of our programs. A run of the whole workspace has built them; a run of
/// this package alone builds those that are not there.
pub(crate) fn ours() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let test = env::current_exe().unwrap();
            let folder = test.parent().unwrap().parent().unwrap().to_owned();
            if PROGRAMS.iter().any(|name| !folder.join(name).exists()) {
                let mut cargo = Command::new(env!("CARGO"));
                cargo.args(["build", "--locked"]).current_dir(root());
                cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
                assert!(cargo.status().unwrap().success(), "{cargo:?}");
            }
            folder
        })
        .clone()
}

/// Returns what `PATH` is for the guide's commands; `None` if a real program is missing, which
/// is reported.
pub(crate) fn path(names: &[&str], case: &str) -> Option<String> {
    let mut folders = vec![ours()];
    for name in names {
        folders.push(SUITE.part(name, case)?.path.parent()?.to_owned());
    }
    let inherited = env::var_os("PATH").unwrap_or_default();
    folders.extend(env::split_paths(&inherited));
    folders.dedup();
    Some(env::join_paths(folders).unwrap().into_string().unwrap())
}

/// Returns what one of our programs prints for `arguments`.
pub(crate) fn printed(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(ours().join(program));
    let output = command.args(arguments).output().unwrap();
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8(text).unwrap()
}
