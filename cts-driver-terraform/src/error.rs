use std::path::PathBuf;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a task and its infrastructure.
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
        /// Where the value stops being text.
        source: std::str::Utf8Error,
    },
    /// A file or directory of a task could not be used.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, such as `cannot write`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system reported.
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

    /// Whether the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::NotText { .. } => false,
            Self::File { .. } => true,
        }
    }
}
