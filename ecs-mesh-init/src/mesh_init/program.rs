//! Finds the program that runs, to copy it into the shared volume.

use std::path::{Path, PathBuf};

/// Returns the path of the running program.
///
/// If it was started through the dynamic loader, the system names the loader; then `first_argument`
/// is looked up in `search_path`.
///
/// Source: consul-ecs 0.8.1 `subcommand/mesh-init/command.go`.
pub fn own_program(executable: PathBuf, first_argument: &Path, search_path: &str) -> PathBuf {
    if !is_loader(&executable) {
        return executable;
    }
    let found = if first_argument.components().count() > 1 {
        Some(first_argument.to_owned())
    } else {
        std::env::split_paths(search_path)
            .map(|folder| folder.join(first_argument))
            .find(|path| path.is_file())
    };
    found.and_then(|path| path.canonicalize().ok()).unwrap_or(executable)
}

/// Returns `true` if a file has the name of a loader, such as `ld-linux-x86-64.so.2`.
fn is_loader(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((before, version)) = name.strip_prefix("ld-").and_then(|rest| rest.split_once(".so."))
    else {
        return false;
    };
    !before.is_empty() && !before.contains('.') && version.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_seen_through() {
        assert!(is_loader(Path::new("/lib64/ld-linux-x86-64.so.2")));
        assert!(is_loader(Path::new("ld-musl-x86_64.so.1")));
        for other in ["/bin/consul-ecs", "ld-.so.1", "ld-a.b.so.1", "ld-a.so.x", ""] {
            assert!(!is_loader(Path::new(other)), "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("consul-ecs");
        std::fs::write(&program, "").unwrap();
        let path = format!("/nowhere:{}", folder.path().display());
        let loader = PathBuf::from("/lib64/ld-linux-x86-64.so.2");
        let found = own_program(loader.clone(), Path::new("consul-ecs"), &path);
        assert_eq!(found, program.canonicalize().unwrap());
        assert_eq!(own_program(loader.clone(), &program, ""), found);
        assert_eq!(own_program(loader.clone(), Path::new("missing"), &path), loader);
        assert_eq!(own_program(program.clone(), Path::new("x"), ""), program);
    }
}
