//! Uploads of root modules, and what the platform has made of them.

use std::fmt;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Upload of a root module.
pub type ConfigurationVersion = Resource<ConfigurationVersionAttributes>;

/// Id of a [`ConfigurationVersion`], such as `cv-UYwHEakurukz85nW`.
pub type ConfigurationVersionId = Id<ConfigurationVersionAttributes>;

/// Attributes of a [`ConfigurationVersion`].
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ConfigurationVersionAttributes {
    /// Progress of the platform with the upload.
    pub status: ConfigurationStatus,
    /// Origin, such as `tfe-api`.
    #[serde(default)]
    pub source: Option<String>,
    /// Reason that it cannot be used, for people.
    #[serde(default)]
    pub error_message: Option<String>,
    /// Address for the archive: a secret, and there only if it was just created.
    #[serde(default)]
    pub upload_url: Option<SecretString>,
}

impl Kind for ConfigurationVersionAttributes {
    const TYPE: &'static str = "configuration-versions";
}

impl fmt::Debug for ConfigurationVersionAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address for the archive, which needs no token.
        f.debug_struct("ConfigurationVersionAttributes")
            .field("status", &self.status)
            .field("error_message", &self.error_message)
            .finish_non_exhaustive()
    }
}

/// Progress of the platform with an upload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
#[non_exhaustive]
pub enum ConfigurationStatus {
    /// Nothing was uploaded, or it is not processed yet.
    Pending,
    /// The platform fetches it.
    Fetching,
    /// A run can use it.
    Uploaded,
    /// It cannot be used.
    Errored,
    /// The files of the upload are gone.
    Archived,
    /// Status that is not known.
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

/// Options of an upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct NewConfigurationVersion {
    /// `true` if the upload queues a run by itself. The platform's own default is `true`; ours is
    /// `false`.
    pub auto_queue_runs: bool,
    /// `true` if only plan-only runs can use it.
    pub speculative: bool,
    /// `true` if it becomes the workspace's current one only after it was applied.
    pub provisional: bool,
}
