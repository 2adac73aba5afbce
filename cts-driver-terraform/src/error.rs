//! Everything that can go wrong between a task and its infrastructure.

use std::path::PathBuf;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error between a task and its infrastructure.
///
/// No variant ever holds a token or the value of a provider's argument.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration asks for what Terraform would refuse, or for what cannot be written.
    #[error("{}", problems.join("; "))]
    Invalid {
        /// All that was found.
        problems: Vec<String>,
    },
    /// The value of a key in Consul is no text, so no Terraform variable can hold it.
    #[error("the value of Consul key {key:?} is not UTF-8 text, which Terraform cannot hold")]
    NotText {
        /// The key.
        key: String,
        /// The position of the first byte that is no text.
        source: std::str::Utf8Error,
    },
    /// A dynamic value of a provider is not available.
    #[error("cannot read {reference}{}: {problem}", for_provider(provider.as_deref()))]
    #[cfg(feature = "settings")]
    Value {
        /// The reference, without its value.
        reference: String,
        /// The provider whose block asks for it.
        provider: Option<String>,
        /// The reason, without the value.
        problem: String,
        /// `true` if a later look-up may succeed.
        retryable: bool,
    },
    /// There is no binary to run.
    #[error(
        "found neither {names} {place}: install one of them, or set `path` of driver \"terraform\" \
         to the directory that holds it"
    )]
    #[cfg(feature = "cli")]
    NotFound {
        /// Names of the binary.
        names: String,
        /// The directory, or `PATH`.
        place: String,
    },
    /// The binary that was found may not be run.
    #[error("{message}")]
    #[cfg(feature = "cli")]
    Unsupported {
        /// Why, and what to do.
        message: String,
    },
    /// Terraform could not be installed.
    #[error("cannot install Terraform: {what}: {problem}")]
    #[cfg(feature = "download")]
    Install {
        /// The file or address.
        what: String,
        /// The reason.
        problem: String,
        /// `true` if a later try may succeed.
        retryable: bool,
    },
    /// Terraform has applied, and the handler of a provider failed.
    #[error("applied, but the handler of provider {provider} failed: {problem}")]
    #[cfg(feature = "cli")]
    Handler {
        /// The provider.
        provider: String,
        /// The handler's step, and why it failed.
        problem: String,
        /// `true` if a later try may succeed.
        retryable: bool,
    },
    /// A command ran and failed.
    #[error("{step} failed: {}", reported(diagnostics, text))]
    #[cfg(feature = "cli")]
    Failed {
        /// The command.
        step: crate::Step,
        /// Diagnostics of the tool.
        diagnostics: Vec<crate::ToolDiagnostic>,
        /// Output of the tool, where it gave no diagnostics.
        text: String,
    },
    /// A command could not be run.
    #[error("cannot {action}")]
    #[cfg(feature = "cli")]
    Process {
        /// The action, such as `run init`.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The output of a command has an unknown form.
    #[error("cannot read what {step} printed: {problem}")]
    #[cfg(feature = "cli")]
    Output {
        /// The command.
        step: crate::Step,
        /// The reason.
        problem: String,
    },
    /// A command was stopped before it was done.
    #[error("interrupted: {reason}")]
    #[cfg(feature = "cli")]
    Interrupted {
        /// Why.
        reason: cts_tasks::StopReason,
    },
    /// The task's directory belongs to somebody else.
    #[error(
        "{} is in use by {holder}, after {} s of waiting; a directory belongs to one task of one \
         daemon: end that process, or set another working_dir",
        path.display(), after.as_secs()
    )]
    #[cfg(feature = "cli")]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// Task, process and host of whoever has it.
        holder: String,
        /// Time for which it was waited for.
        after: std::time::Duration,
    },
    /// The state could not be brought from the backend that the directory had to the
    /// one that it has now.
    #[error(
        "cannot move the state of the task from {from} to {to}: if there is nothing to move, \
         remove {}", remembered.display()
    )]
    #[cfg(feature = "cli")]
    StateMove {
        /// The backend that had the state.
        from: String,
        /// The backend that is to have it.
        to: String,
        /// The file in which the tool remembers the former.
        remembered: PathBuf,
        /// The reason.
        source: Box<Self>,
    },
    /// The state that an earlier command left in a file could not be pushed.
    #[error(
        "cannot push {}, the state that an earlier command could not save, so nothing is planned \
         or applied: it is pushed again at the next run; where the backend refuses it as older or \
         of another lineage, compare it with what `{tool} state pull` prints in its directory, \
         then either remove the file or push it there with `{tool} state push -force`",
        path.display()
    )]
    #[cfg(feature = "cli")]
    LeftState {
        /// The file.
        path: PathBuf,
        /// The tool's command.
        tool: &'static str,
        /// The reason.
        source: Box<Self>,
    },
    /// A file or directory of a task could not be used.
    #[error("{action} {}", path.display())]
    File {
        /// The failed action, such as `cannot write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid { problems: vec![problem.into()] }
    }

    /// Fails when there are problems.
    pub(crate) fn unless_empty(problems: Vec<String>) -> Result<()> {
        if problems.is_empty() { Ok(()) } else { Err(Self::Invalid { problems }) }
    }

    /// Says which provider a value is for.
    #[cfg(feature = "settings")]
    pub(crate) fn of_provider(self, id: &str) -> Self {
        match self {
            Self::Value { reference, problem, retryable, .. } => {
                Self::Value { reference, provider: Some(id.to_owned()), problem, retryable }
            }
            other => other,
        }
    }

    /// Returns the holder of the lock that a command found on the state, if it failed for that.
    ///
    /// The tool has no code for it, but every backend reports its lock under
    /// the same heading.
    #[cfg(feature = "cli")]
    pub fn lock_holder(&self) -> Option<String> {
        const HEADING: &str = "Lock Info:";
        if let Self::StateMove { source, .. } | Self::LeftState { source, .. } = self {
            return source.lock_holder();
        }
        let Self::Failed { diagnostics, text, .. } = self else { return None };
        let details = diagnostics.iter().flat_map(|found| [&found.summary, &found.detail]);
        let (_, holder) = details.chain([text]).find_map(|text| text.split_once(HEADING))?;
        let lines = holder.lines().map(str::trim).filter(|line| !line.is_empty()).take(7);
        Some(
            lines
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join(", "),
        )
    }

    /// The lock that a command found on the state, if it reported one.
    #[cfg(feature = "cli")]
    pub(crate) fn state_lock(&self) -> Option<crate::StateLock> {
        let Self::Failed { diagnostics, text, .. } = self else { return None };
        let details = diagnostics.iter().flat_map(|found| [&found.summary, &found.detail]);
        details.chain([text]).find_map(|text| crate::StateLock::read(text))
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::NotText { .. } => false,
            Self::File { .. } => true,
            #[cfg(feature = "settings")]
            Self::Value { retryable, .. } => *retryable,
            #[cfg(feature = "download")]
            Self::Install { retryable, .. } => *retryable,
            #[cfg(feature = "cli")]
            Self::NotFound { .. }
            | Self::Unsupported { .. }
            | Self::Output { .. }
            | Self::Interrupted { .. } => false,
            #[cfg(feature = "cli")]
            Self::Handler { retryable, .. } => *retryable,
            #[cfg(feature = "cli")]
            Self::Failed { step, .. } => *step != crate::Step::Validate,
            #[cfg(feature = "cli")]
            Self::StateMove { source, .. } | Self::LeftState { source, .. } => {
                source.is_retryable()
            }
            #[cfg(feature = "cli")]
            Self::Process { .. } | Self::Occupied { .. } => true,
        }
    }
}

#[cfg(feature = "cli")]
fn reported(diagnostics: &[crate::ToolDiagnostic], text: &str) -> String {
    if diagnostics.is_empty() {
        return text.to_owned();
    }
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(feature = "settings")]
fn for_provider(provider: Option<&str>) -> String {
    provider.map(|id| format!(" for provider {id}")).unwrap_or_default()
}
