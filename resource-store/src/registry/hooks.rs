//! What a type adds to the service: checks, defaults, permissions.

use std::{fmt, sync::Arc};

use crate::{
    acl::{AclError, Authorizer},
    pb::{self, Id},
    typed::{DataError, Resource, ResourceData, decode_data, try_any},
};

/// Why a hook refused a resource; its text goes to the caller.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Checks a resource on its own; called after mutation.
pub type ValidateHook = Arc<dyn Fn(&pb::Resource) -> Result<(), HookError> + Send + Sync>;
/// Fills in or changes a resource before it is checked.
pub type MutateHook = Arc<dyn Fn(&mut pb::Resource) -> Result<(), HookError> + Send + Sync>;
/// Decides on reading by the identity or, after answering
/// [`AclError::NeedResource`], by the whole resource.
pub type ReadHook =
    Arc<dyn Fn(&dyn Authorizer, &Id, Option<&pb::Resource>) -> Result<(), AclError> + Send + Sync>;
/// Decides on writing a resource.
pub type WriteHook =
    Arc<dyn Fn(&dyn Authorizer, &pb::Resource) -> Result<(), AclError> + Send + Sync>;
/// Decides on listing the type at all.
pub type ListHook = Arc<dyn Fn(&dyn Authorizer) -> Result<(), AclError> + Send + Sync>;

/// The permissions that a type asks for.
///
/// The default asks for the operator's permissions.
#[derive(Clone)]
pub struct AclHooks {
    /// For reading one, and for each item of a list or watch.
    pub read: ReadHook,
    /// For writing (the incoming resource) and deleting (the stored one).
    pub write: WriteHook,
    /// For listing and watching.
    pub list: ListHook,
}

impl Default for AclHooks {
    fn default() -> Self {
        Self {
            read: Arc::new(|authorizer, _, _| authorizer.operator_read()),
            write: Arc::new(|authorizer, _| authorizer.operator_write()),
            list: Arc::new(|authorizer| authorizer.operator_read()),
        }
    }
}

impl AclHooks {
    /// Replaces the read hook.
    #[must_use]
    pub fn with_read(
        mut self,
        hook: impl Fn(&dyn Authorizer, &Id, Option<&pb::Resource>) -> Result<(), AclError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.read = Arc::new(hook);
        self
    }

    /// Replaces the read hook by one that always sees the whole resource.
    #[must_use]
    pub fn with_read_resource(
        self,
        hook: impl Fn(&dyn Authorizer, &pb::Resource) -> Result<(), AclError> + Send + Sync + 'static,
    ) -> Self {
        self.with_read(move |authorizer, _, resource| match resource {
            Some(resource) => hook(authorizer, resource),
            None => Err(AclError::NeedResource),
        })
    }

    /// Replaces the read hook by one that sees the decoded resource.
    #[must_use]
    pub fn with_read_decoded<T: ResourceData>(
        self,
        hook: impl Fn(&dyn Authorizer, &Resource<T>) -> Result<(), AclError> + Send + Sync + 'static,
    ) -> Self {
        self.with_read_resource(move |authorizer, resource| hook(authorizer, &decoded(resource)?))
    }

    /// Replaces the write hook.
    #[must_use]
    pub fn with_write(
        mut self,
        hook: impl Fn(&dyn Authorizer, &pb::Resource) -> Result<(), AclError> + Send + Sync + 'static,
    ) -> Self {
        self.write = Arc::new(hook);
        self
    }

    /// Replaces the write hook by one that sees the decoded resource.
    #[must_use]
    pub fn with_write_decoded<T: ResourceData>(
        self,
        hook: impl Fn(&dyn Authorizer, &Resource<T>) -> Result<(), AclError> + Send + Sync + 'static,
    ) -> Self {
        self.with_write(move |authorizer, resource| hook(authorizer, &decoded(resource)?))
    }

    /// Replaces the list hook.
    #[must_use]
    pub fn with_list(
        mut self,
        hook: impl Fn(&dyn Authorizer) -> Result<(), AclError> + Send + Sync + 'static,
    ) -> Self {
        self.list = Arc::new(hook);
        self
    }

    /// Lets everyone list; the read hook still filters the items.
    #[must_use]
    pub fn with_open_list(self) -> Self {
        self.with_list(|_| Ok(()))
    }
}

impl fmt::Debug for AclHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AclHooks")
    }
}

fn decoded<T: ResourceData>(resource: &pb::Resource) -> Result<Resource<T>, AclError> {
    Resource::decode(resource).map_err(|e| AclError::Other(e.to_string()))
}

/// A validate hook over decoded resources.
pub(super) fn validate_decoded<T: ResourceData>(
    hook: impl Fn(&Resource<T>) -> Result<(), HookError> + Send + Sync + 'static,
) -> ValidateHook {
    Arc::new(move |resource| hook(&Resource::decode(resource)?))
}

/// A mutate hook over decoded data, which encodes again only what changed.
pub(super) fn mutate_decoded<T: ResourceData>(
    hook: impl Fn(&mut T, &pb::Resource) -> Result<bool, HookError> + Send + Sync + 'static,
) -> MutateHook {
    Arc::new(move |resource| {
        let mut data: T = decode_data(resource).map_err(|e: DataError| Box::new(e) as HookError)?;
        if hook(&mut data, resource)? {
            resource.data = Some(try_any(&data)?);
        }
        Ok(())
    })
}
