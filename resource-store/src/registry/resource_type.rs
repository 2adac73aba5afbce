//! Rust types that know what is to be registered of them.

use super::registration::Registration;
use crate::{schema::SchemaError, typed::ResourceData};

/// A Rust type that says everything of its resource type, so that it can be registered by
/// its name ([`Registry::register_type`](crate::Registry::register_type)).
///
/// `#[derive(Resource)]` implements it.
pub trait ResourceType: ResourceData {
    /// Returns what is to be registered: message, scope and hooks. More hooks, as
    /// [`Registration::acls`], may be added.
    ///
    /// # Errors
    ///
    /// If the descriptors that the type came with lack the message.
    fn registration() -> Result<Registration, SchemaError>;
}
