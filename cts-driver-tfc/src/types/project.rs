//! Projects.

use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// Project: workspaces that belong together.
pub type Project = Resource<ProjectAttributes>;

/// Id of a [`Project`], such as `prj-jT92VLSFpv8FwKtc`.
pub type ProjectId = Id<ProjectAttributes>;

/// Attributes of a [`Project`].
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct ProjectAttributes {
    /// Name, unique in the organization.
    pub name: String,
}

impl Kind for ProjectAttributes {
    const TYPE: &'static str = "projects";
}
