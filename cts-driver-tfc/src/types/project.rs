use serde::Deserialize;

use crate::{
    document::{Kind, Resource},
    id::Id,
};

/// A project: workspaces that belong together.
pub type Project = Resource<ProjectAttributes>;

/// The id of a [`Project`], such as `prj-jT92VLSFpv8FwKtc`.
pub type ProjectId = Id<ProjectAttributes>;

/// Attributes of a [`Project`].
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct ProjectAttributes {
    /// Its name, unique in the organization.
    pub name: String,
}

impl Kind for ProjectAttributes {
    const TYPE: &'static str = "projects";
}
