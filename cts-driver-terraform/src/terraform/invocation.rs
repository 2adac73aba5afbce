//! One call of the tool: where it runs, with what, until when; and the names of its steps.

use std::{collections::BTreeMap, fmt, fs::File, path::PathBuf, sync::Arc};

use cts_tasks::{Progress, Stop};
use secrecy::SecretString;

/// Directory, environment, secrets and stop of one command.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The task's directory.
    pub directory: PathBuf,
    /// Variables besides the inherited ones.
    pub environment: BTreeMap<String, SecretString>,
    /// Secret attributes of the backend for `init`, in the tool's language; see
    /// [`crate::Backend::secret_attributes`].
    pub backend_config: Option<SecretString>,
    /// Texts that are masked in everything that the command prints.
    pub masked: Vec<SecretString>,
    /// Says when to end.
    pub stop: Stop,
    /// The command's standard input, from which it reads nothing: an open file
    /// whose lock lasts as long as the command. Without one it is closed.
    pub input: Option<Arc<File>>,
    /// Receiver of the command's progress.
    pub progress: Arc<dyn Progress>,
}

/// A command of the tool, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// `version`.
    Version,
    /// `init`, with the handling of workspaces.
    Init,
    /// `validate`.
    Validate,
    /// `plan`.
    Plan,
    /// `apply`.
    Apply,
    /// `destroy`.
    Destroy,
    /// `show`.
    Show,
    /// `output`.
    Output,
    /// `state pull` and `state push`.
    State,
    /// `force-unlock`.
    Unlock,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "version",
            Self::Init => "init",
            Self::Validate => "validate",
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Show => "show",
            Self::Output => "output",
            Self::State => "state",
            Self::Unlock => "force-unlock",
        })
    }
}
