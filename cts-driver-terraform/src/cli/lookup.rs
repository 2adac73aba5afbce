//! Look-up of the `terraform` or `tofu` binary.

use std::path::{Path, PathBuf};

use super::CliOptions;
use crate::{Error, Result};

/// The names of the command, the preferred one first.
const NAMES: [&str; 2] = ["terraform", "tofu"];

/// Finds the binary in the configured directory, or on `PATH` if there is none.
///
/// Source: Consul-Terraform-Sync 0.9, `path` of `driver "terraform"`.
///
/// Deviation: upstream looks only into one directory, by default the current
/// one, and downloads what it does not find; ours uses `PATH` when no
/// directory is configured, and takes `tofu` too.
pub(super) fn find(options: &CliOptions) -> Result<PathBuf> {
    let found = if let Some(directory) = &options.path {
        in_directory(directory)
    } else {
        let path = options.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value);
        NAMES.iter().find_map(|name| which::which_in(name, path, "/").ok())
    };
    found.ok_or_else(|| Error::NotFound {
        names: NAMES.join(" nor "),
        place: match &options.path {
            Some(directory) => format!("in the configured path {}", directory.display()),
            None => "on PATH".to_owned(),
        },
    })
}

/// The binary in a directory.
pub(super) fn in_directory(directory: &Path) -> Option<PathBuf> {
    NAMES.iter().find_map(|name| executable(&directory.join(name)))
}

fn executable(path: &Path) -> Option<PathBuf> {
    which::which_in(path, None::<&str>, "/").ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::{CliOptions, find};

    fn place(directory: &Path, name: &str, mode: u32) {
        let path = directory.join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn options(path: Option<&Path>, search: &Path) -> CliOptions {
        CliOptions {
            path: path.map(Into::into),
            environment: vec![("PATH".into(), search.into())],
            ..CliOptions::default()
        }
    }

    #[test]
    fn terraform_is_preferred_and_tofu_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let empty = tempfile::tempdir().unwrap();
        place(directory.path(), "tofu", 0o755);
        for configured in [Some(directory.path()), None] {
            let search = if configured.is_some() { empty.path() } else { directory.path() };
            assert!(find(&options(configured, search)).unwrap().ends_with("tofu"));
        }
        place(directory.path(), "terraform", 0o755);
        assert!(find(&options(None, directory.path())).unwrap().ends_with("terraform"));
    }

    #[test]
    fn a_configured_path_is_the_only_place() {
        let directory = tempfile::tempdir().unwrap();
        let search = tempfile::tempdir().unwrap();
        place(search.path(), "terraform", 0o755);
        place(directory.path(), "terraform", 0o644);
        let error = find(&options(Some(directory.path()), search.path())).unwrap_err().to_string();
        assert!(
            error.starts_with("found neither terraform nor tofu in the configured path "),
            "{error}"
        );
    }

    #[test]
    fn the_error_says_what_was_looked_for_and_where() {
        let empty = tempfile::tempdir().unwrap();
        let error = find(&options(None, empty.path())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "found neither terraform nor tofu on PATH: install one of them, or set `path` of \
             driver \"terraform\" to the directory that holds it"
        );
        assert!(!error.is_retryable());
    }
}
