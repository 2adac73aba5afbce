//! Answers of the XML API of a firewall.

use roxmltree::{Document, Node};
use secrecy::SecretString;

use super::connection::Connection;
use crate::{Error, Result};

/// The codes of answers, and the states, that mean that the credentials are refused.
const REFUSED: [&str; 3] = ["16", "22", "403"];

/// The code of a commit that would change nothing, as users with a custom role get it.
const NOTHING_TO_COMMIT: &str = "13";

/// An answer of the firewall.
///
/// Source: PAN-OS XML API, structure and codes of responses.
pub(super) struct Response<'a> {
    connection: &'a Connection,
    code: String,
    success: bool,
    job: Option<String>,
    key: Option<SecretString>,
    message: String,
    state: Option<String>,
    result: Option<String>,
}

/// Result of a request to commit.
pub(super) enum Commit {
    Queued(u64),
    Nothing,
}

/// State of a job.
pub(super) enum Job {
    Running,
    Succeeded,
    Failed(String),
}

impl<'a> Response<'a> {
    /// Reads an answer; one that refuses the credentials is an error.
    pub(super) fn read(connection: &'a Connection, status: u16, content: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(content);
        let Ok(document) = Document::parse(&text) else {
            let problem = format!("the server answered {status}, and no XML");
            return Err(connection.failure(problem, !matches!(status, 401 | 403)));
        };
        let root = document.root_element();
        let code = root.attribute("code").unwrap_or_default().to_owned();
        let job = find(root, "job");
        let inner = |name| job.and_then(|job| find(job, name)).and_then(trimmed);
        let response = Self {
            connection,
            success: root.attribute("status") == Some("success"),
            job: job.and_then(trimmed),
            key: find(root, "key").and_then(trimmed).map(Into::into),
            message: message(root),
            state: inner("status"),
            result: inner("result"),
            code,
        };
        let refused = REFUSED.contains(&response.code.as_str()) || matches!(status, 401 | 403);
        if refused && !response.success {
            return Err(response.failure("the credentials are refused", false));
        }
        Ok(response)
    }

    /// The key that was asked for.
    pub(super) fn key(self) -> Result<SecretString> {
        match &self.key {
            Some(key) if self.success => Ok(key.clone()),
            _ => Err(self.failure("no key was given", true)),
        }
    }

    /// The job that commits, if there is anything to commit.
    ///
    /// Source: Consul-Terraform-Sync 0.9, empty commits.
    pub(super) fn commit(self) -> Result<Commit> {
        if self.success && self.code == NOTHING_TO_COMMIT {
            return Ok(Commit::Nothing);
        }
        if !self.success {
            return Err(self.failure("the commit was refused", true));
        }
        match self.job.as_deref().map(str::parse) {
            None | Some(Ok(0)) => Ok(Commit::Nothing),
            Some(Ok(job)) => Ok(Commit::Queued(job)),
            Some(Err(_)) => Err(self.failure("the job's number is none", false)),
        }
    }

    /// Returns the state of the job that was asked for.
    pub(super) fn job(self) -> Result<Job> {
        if !self.success {
            return Err(self.failure("the job cannot be looked at", true));
        }
        match (self.state.as_deref(), self.result.as_deref()) {
            (Some("FIN"), Some("OK")) => Ok(Job::Succeeded),
            (Some("FIN"), _) => Ok(Job::Failed(self.message)),
            (Some(_), _) => Ok(Job::Running),
            (None, _) => Err(self.failure("the job has no status", true)),
        }
    }

    fn failure(&self, what: &str, retryable: bool) -> Error {
        let message = if self.message.is_empty() { "no reason given" } else { &self.message };
        self.connection.failure(format!("{what}: {message} (code {})", self.code), retryable)
    }
}

/// The first element below with this name.
fn find<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.descendants().skip(1).find(|node| node.has_tag_name(name))
}

fn trimmed(node: Node<'_, '_>) -> Option<String> {
    let text = node.text()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// All that the answer says to people.
fn message(root: Node<'_, '_>) -> String {
    // A message with lines has no text of its own but the space between them.
    let spoken = root.descendants().filter(|node| matches!(node.tag_name().name(), "line" | "msg"));
    spoken.filter_map(trimmed).collect::<Vec<_>>().join("; ")
}
