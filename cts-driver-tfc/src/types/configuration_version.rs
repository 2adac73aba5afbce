use std::fmt;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// One upload of a root module.
pub type ConfigurationVersion = Resource<ConfigurationVersionAttributes>;

/// The id of a [`ConfigurationVersion`], such as `cv-UYwHEakurukz85nW`.
pub type ConfigurationVersionId = Id<ConfigurationVersionAttributes>;

/// Attributes of a [`ConfigurationVersion`].
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ConfigurationVersionAttributes {
    /// How far the platform is with it.
    pub status: ConfigurationStatus,
    /// Where it came from, such as `tfe-api`.
    #[serde(default)]
    pub source: Option<String>,
    /// Why it cannot be used, for people.
    #[serde(default)]
    pub error_message: Option<String>,
    /// Where the archive goes: a secret, and there only when it was just created.
    #[serde(default)]
    pub upload_url: Option<SecretString>,
}

impl Kind for ConfigurationVersionAttributes {
    const TYPE: &'static str = "configuration-versions";
}

impl fmt::Debug for ConfigurationVersionAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationVersionAttributes")
            .field("status", &self.status)
            .field("error_message", &self.error_message)
            .finish_non_exhaustive()
    }
}

/// How far the platform is with an upload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum ConfigurationStatus {
    /// Nothing was uploaded, or it is not processed yet.
    Pending,
    /// It is being fetched.
    Fetching,
    /// It can be run.
    Uploaded,
    /// It cannot be used.
    Errored,
    /// Its files are gone.
    Archived,
    /// One that is not known.
    Other(String),
}

impl From<String> for ConfigurationStatus {
    fn from(text: String) -> Self {
        match text.as_str() {
            "pending" => Self::Pending,
            "fetching" => Self::Fetching,
            "uploaded" => Self::Uploaded,
            "errored" => Self::Errored,
            "archived" | "backing_data_soft_deleted" | "backing_data_permanently_deleted" => {
                Self::Archived
            }
            _ => Self::Other(text),
        }
    }
}

/// What an upload is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct NewConfigurationVersion {
    /// Whether the upload queues a run by itself. The platform's own default
    /// is true; ours is false.
    pub auto_queue_runs: bool,
    /// Whether only plan-only runs can use it.
    pub speculative: bool,
    /// Whether it becomes the workspace's current one only when it was applied.
    pub provisional: bool,
}
