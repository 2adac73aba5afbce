//! One type as it is registered.

use std::{fmt, sync::Arc};

use super::hooks::{self, AclHooks, HookError, MutateHook, ValidateHook};
use crate::{
    pb::{self, Type},
    schema::{Schema, SchemaError},
    tenancy::Scope,
    typed::{Resource, ResourceData},
};

/// A type as it is registered: message, scope and hooks.
///
/// Without hooks, every resource whose data is of the message is valid, is
/// stored as it came, and is the operator's to read and write.
///
/// Source: `internal/resource/registry.go`, `hooks.go`, Consul 1.21.
#[derive(Clone)]
#[must_use]
pub struct Registration {
    ty: Type,
    schema: Schema,
    scope: Scope,
    acls: AclHooks,
    validate: Option<ValidateHook>,
    mutate: Option<MutateHook>,
    json_schema: Option<Arc<serde_json::Value>>,
}

impl Registration {
    /// A type with its message and scope.
    pub fn new(ty: Type, schema: Schema, scope: Scope) -> Self {
        Self {
            ty,
            schema,
            scope,
            acls: AclHooks::default(),
            validate: None,
            mutate: None,
            json_schema: None,
        }
    }

    /// The type of a Rust type.
    ///
    /// # Errors
    ///
    /// If the descriptors of the Rust type lack its message.
    pub fn of<T: ResourceData>(scope: Scope) -> Result<Self, SchemaError> {
        Ok(Self::new(T::resource_type(), T::schema()?, scope))
    }

    /// Sets the permissions that the type asks for.
    pub fn acls(mut self, acls: AclHooks) -> Self {
        self.acls = acls;
        self
    }

    /// Sets a structural check.
    pub fn validate(
        mut self,
        hook: impl Fn(&pb::Resource) -> Result<(), HookError> + Send + Sync + 'static,
    ) -> Self {
        self.validate = Some(Arc::new(hook));
        self
    }

    /// Sets a structural check over decoded resources.
    pub fn validate_decoded<T: ResourceData>(
        mut self,
        hook: impl Fn(&Resource<T>) -> Result<(), HookError> + Send + Sync + 'static,
    ) -> Self {
        self.validate = Some(hooks::validate_decoded(hook));
        self
    }

    /// Sets what is changed before the check.
    pub fn mutate(
        mut self,
        hook: impl Fn(&mut pb::Resource) -> Result<(), HookError> + Send + Sync + 'static,
    ) -> Self {
        self.mutate = Some(Arc::new(hook));
        self
    }

    /// Sets what is changed before the check, over decoded data. The hook says
    /// whether it changed anything; only then is the data encoded again.
    pub fn mutate_decoded<T: ResourceData>(
        mut self,
        hook: impl Fn(&mut T, &pb::Resource) -> Result<bool, HookError> + Send + Sync + 'static,
    ) -> Self {
        self.mutate = Some(hooks::mutate_decoded(hook));
        self
    }

    /// Says how the data look in JSON, for those who write them by hand, and for their
    /// editors. Nothing is checked against it.
    pub fn with_json_schema(mut self, schema: serde_json::Value) -> Self {
        self.json_schema = Some(Arc::new(schema));
        self
    }

    /// The JSON schema of the data, if the type has one.
    pub fn json_schema(&self) -> Option<&serde_json::Value> {
        self.json_schema.as_deref()
    }

    /// The type.
    pub fn resource_type(&self) -> &Type {
        &self.ty
    }

    /// The message of the data.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The scope.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    pub(crate) fn acl_hooks(&self) -> &AclHooks {
        &self.acls
    }

    pub(crate) fn run_validate(&self, resource: &pb::Resource) -> Result<(), HookError> {
        self.validate.as_ref().map_or(Ok(()), |hook| hook(resource))
    }

    pub(crate) fn run_mutate(&self, resource: &mut pb::Resource) -> Result<(), HookError> {
        self.mutate.as_ref().map_or(Ok(()), |hook| hook(resource))
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("type", &self.ty.to_string())
            .field("schema", &self.schema)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
