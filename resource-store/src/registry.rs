//! The types that a service knows.

mod hooks;
mod registration;
mod resource_type;

use std::{collections::HashMap, sync::Arc};

pub use hooks::{AclHooks, HookError, ListHook, MutateHook, ReadHook, ValidateHook, WriteHook};
pub use registration::Registration;
pub use resource_type::ResourceType;

use crate::{
    name,
    pb::{self, Tombstone, Type},
    tenancy::Scope,
    typed::ResourceData,
};

crate::resource_data!(
    Tombstone,
    ["internal", "v1", "Tombstone"],
    "hashicorp.consul.resource.Tombstone",
    pb::FILE_DESCRIPTOR_SET
);

/// A type cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The type, its message or its scope breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// The type is registered already.
    #[error("resource type {0} already registered")]
    Duplicate(Type),
    /// The message of the type is not described; the cause says why.
    #[error("cannot describe the data of a resource type")]
    Schema(#[from] crate::schema::SchemaError),
}

/// The types that a service knows, each version on its own.
///
/// Filled at start, then shared. A new registry holds the type of tombstones.
///
/// Source: `internal/resource/registry.go`, Consul 1.21.
/// Deviation: a bad registration is an error, not a panic.
#[derive(Debug, Clone)]
pub struct Registry {
    /// By group, version and kind.
    types: HashMap<Type, Arc<Registration>>,
}

impl Registry {
    /// A registry that holds tombstones only.
    ///
    /// # Errors
    ///
    /// If the descriptors built into this crate are broken, which its tests
    /// rule out.
    pub fn new() -> Result<Self, RegistryError> {
        let tombstone = Registration::of::<Tombstone>(Scope::Undefined)?;
        let types = HashMap::from([(tombstone.resource_type().clone(), Arc::new(tombstone))]);
        Ok(Self { types })
    }

    /// Adds a type.
    ///
    /// # Errors
    ///
    /// If its name breaks the rules, its scope is undefined, or it is known
    /// already.
    pub fn register(&mut self, registration: Registration) -> Result<(), RegistryError> {
        let ty = registration.resource_type().clone();
        check_type(&ty)?;
        if registration.scope() == Scope::Undefined {
            return Err(RegistryError::Invalid(format!(
                "scope required for {ty}. Got: \"undefined\""
            )));
        }
        if self.types.contains_key(&ty) {
            return Err(RegistryError::Duplicate(ty));
        }
        self.types.insert(ty, Arc::new(registration));
        Ok(())
    }

    /// Adds the type that a Rust type describes.
    ///
    /// # Errors
    ///
    /// As [`Registry::register`].
    pub fn register_type<T: ResourceType>(&mut self) -> Result<(), RegistryError> {
        self.register(T::registration()?)
    }

    /// Looks up exactly this type, version included.
    pub fn resolve(&self, ty: &Type) -> Option<&Arc<Registration>> {
        self.types.get(ty)
    }

    /// Every registered type, in no order.
    pub fn types(&self) -> impl Iterator<Item = &Arc<Registration>> {
        self.types.values()
    }

    /// The types whose kind is `kind`, whatever the case of its letters.
    pub fn by_short_name(&self, kind: &str) -> Vec<&Type> {
        let mut found: Vec<_> =
            self.types.keys().filter(|ty| ty.kind.eq_ignore_ascii_case(kind)).collect();
        found.sort_by_key(ToString::to_string);
        found
    }
}

fn check_type(ty: &Type) -> Result<(), RegistryError> {
    let invalid = |text: String| Err(RegistryError::Invalid(text));
    if ty.group.is_empty() || ty.group_version.is_empty() || ty.kind.is_empty() {
        return invalid("type field(s) cannot be empty".to_owned());
    }
    if !name::is_valid_group(&ty.group) {
        return invalid(format!("Type.Group must be in snake_case. Got: {:?}", ty.group));
    }
    if !name::is_valid_group_version(&ty.group_version) {
        return invalid(format!(
            "Type.GroupVersion must be lowercase, start with `v`, and end with a number \
             (e.g. `v2` or `v2beta1`). Got: {:?}",
            ty.group_version
        ));
    }
    if !name::is_valid_kind(&ty.kind) {
        return invalid(format!("Type.Kind must be in PascalCase. Got: {:?}", ty.kind));
    }
    Ok(())
}

/// The type of tombstones.
pub fn tombstone_type() -> Type {
    Tombstone::resource_type()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{demo::v2::Artist, error_chain::error_chain, schema::Schema};

    fn attempt(group: &str, version: &str, kind: &str) -> Result<(), String> {
        let registration = Registration::new(
            Type::new(group, version, kind),
            Artist::schema().unwrap(),
            Scope::Namespace,
        );
        Registry::new().unwrap().register(registration).map_err(|e| e.to_string())
    }

    #[test]
    fn groups_are_in_snake_case() {
        assert_eq!(attempt("", "v1", "Kind").unwrap_err(), "type field(s) cannot be empty");
        assert_eq!(
            attempt("Foo", "v1", "Kind").unwrap_err(),
            "Type.Group must be in snake_case. Got: \"Foo\""
        );
        assert_eq!(
            attempt("foo-bar", "v1", "Kind").unwrap_err(),
            "Type.Group must be in snake_case. Got: \"foo-bar\""
        );
        assert_eq!(attempt("foo_bar", "v1", "Kind"), Ok(()));
    }

    #[test]
    fn versions_start_with_v_and_end_with_a_number() {
        assert_eq!(attempt("foo", "", "Kind").unwrap_err(), "type field(s) cannot be empty");
        for bad in ["v_1", "v-1", "1", "OnePointOh"] {
            assert_eq!(
                attempt("foo", bad, "Kind").unwrap_err(),
                format!(
                    "Type.GroupVersion must be lowercase, start with `v`, and end with a number \
                     (e.g. `v2` or `v2beta1`). Got: {bad:?}"
                )
            );
        }
    }

    #[test]
    fn kinds_are_in_pascal_case() {
        assert_eq!(attempt("foo", "v1", "Number1"), Ok(()));
        for bad in ["barBaz", "bar_baz"] {
            assert_eq!(
                attempt("foo", "v1", bad).unwrap_err(),
                format!("Type.Kind must be in PascalCase. Got: {bad:?}")
            );
        }
        assert_eq!(attempt("foo", "v1", "").unwrap_err(), "type field(s) cannot be empty");
    }

    #[test]
    fn a_type_registers_once_and_with_a_scope() {
        let mut registry = Registry::new().unwrap();
        registry.register(Registration::of::<Artist>(Scope::Namespace).unwrap()).unwrap();
        let again = registry.register(Registration::of::<Artist>(Scope::Namespace).unwrap());
        assert_eq!(
            again.unwrap_err().to_string(),
            "resource type demo.v2.Artist already registered"
        );
        let unscoped = Registration::new(
            Type::new("foo", "v1", "Bar"),
            Artist::schema().unwrap(),
            Scope::Undefined,
        );
        assert_eq!(
            registry.register(unscoped).unwrap_err().to_string(),
            "scope required for foo.v1.Bar. Got: \"undefined\""
        );
    }

    #[test]
    fn a_type_without_a_description_says_which_message_lacks_it() {
        let missing = Schema::from_descriptor_set(pb::FILE_DESCRIPTOR_SET, "a.B").unwrap_err();
        let text = error_chain(&RegistryError::from(missing));
        assert_eq!(text, "cannot describe the data of a resource type: no message named a.B");
        let malformed = Schema::from_descriptor_set(&[0xff], "a.B").unwrap_err();
        let text = error_chain(&RegistryError::from(malformed));
        let start = "cannot describe the data of a resource type: malformed descriptor set: ";
        assert!(text.starts_with(start) && text.len() > start.len(), "{text}");
    }

    #[test]
    fn tombstones_are_known_from_the_start() {
        let registry = Registry::new().unwrap();
        assert_eq!(registry.types().count(), 1);
        let found = registry.resolve(&tombstone_type()).unwrap();
        assert_eq!(found.schema().message_name(), "hashicorp.consul.resource.Tombstone");
        assert_eq!(registry.by_short_name("tombstone"), [&tombstone_type()]);
    }
}
