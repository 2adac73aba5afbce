//! What the configuration takes from the process: variables, the host's name, the directory.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;
type Hostname = dyn Fn() -> io::Result<String> + Send + Sync;

/// Inputs of the configuration from the process and the machine: environment
/// variables, host name and base folder. All can be replaced, so that a test
/// touches neither.
pub(super) struct Environment {
    pub(super) variables: Box<Variables>,
    pub(super) hostname: Box<Hostname>,
    base_dir: Option<PathBuf>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("base_dir", &self.base_dir).finish_non_exhaustive()
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            variables: Box::new(|name| std::env::var(name).ok()),
            hostname: Box::new(read_hostname),
            base_dir: None,
        }
    }
}

impl Environment {
    pub(super) fn set_base_dir(&mut self, base_dir: PathBuf) {
        self.base_dir = Some(base_dir);
    }

    /// Returns the folder at which relative paths start: absolute, unless the
    /// working directory is gone.
    pub(super) fn base_dir(&self) -> PathBuf {
        let current = || std::env::current_dir().unwrap_or_else(|_gone| PathBuf::from("."));
        self.base_dir.clone().unwrap_or_else(current)
    }

    /// An environment variable, trimmed; one that is empty counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let value = (self.variables)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The first of several environment variables that is set.
    pub(super) fn first_variable(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.variable(name))
    }

    /// A path of the configuration, relative to the base directory.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.base_dir().join(Path::new(path))
    }
}

fn read_hostname() -> io::Result<String> {
    let name = nix::unistd::gethostname().map_err(io::Error::from)?;
    name.into_string().map_err(|_not_text| io::Error::other("the hostname is not text"))
}
