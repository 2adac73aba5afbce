//! Statuses as Rust types.

use super::{Api, ApiError};
use crate::{
    pb,
    typed::{Resource, ResourceData},
};

/// The status that a controller reports of a resource, as a Rust type.
///
/// The protocol keeps a status as a list of conditions, each with a type, a state, a
/// reason and a message; one such list for each key, which is that of the controller.
pub trait StatusReport: Sized + Send + Sync {
    /// The key of the status; usually the name of the controller.
    const KEY: &'static str;

    /// Returns the conditions that say it.
    fn conditions(&self) -> Vec<pb::Condition>;

    /// Reads what conditions say; `None` if they say nothing of this type.
    fn from_conditions(conditions: &[pb::Condition]) -> Option<Self>;
}

/// A resource type whose status is a Rust type.
///
/// `#[derive(Resource)]` implements it, with `status = "…"`.
pub trait HasStatus: ResourceData {
    /// The status.
    type Status: StatusReport;
}

impl<K: HasStatus> Api<K> {
    /// Reports the status of a resource, for the version that was read. Nothing is
    /// written where the resource says that already.
    ///
    /// # Errors
    ///
    /// As [`Api::patch_status`].
    pub async fn report(
        &self,
        resource: &Resource<K>,
        status: &K::Status,
    ) -> Result<Resource<K>, ApiError> {
        let status = pb::Status {
            observed_generation: resource.generation.clone(),
            conditions: status.conditions(),
            updated_at: None,
        };
        self.patch_status(resource, K::Status::KEY, status).await
    }
}

impl<K: HasStatus> Resource<K> {
    /// Returns the status that was reported last, of whichever generation.
    pub fn reported(&self) -> Option<K::Status> {
        let status = self.status.get(K::Status::KEY)?;
        K::Status::from_conditions(&status.conditions)
    }

    /// Returns `true` if what is reported is of the generation that the resource has now.
    pub fn is_observed(&self) -> bool {
        let status = self.status.get(K::Status::KEY);
        status.is_some_and(|status| status.observed_generation == self.generation)
    }
}
