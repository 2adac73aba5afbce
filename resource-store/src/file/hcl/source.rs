//! The text of a file in HCL and the registry, for the parts of the decoder.

use std::ops::Range;

use prost_reflect::{MessageDescriptor, ReflectMessage as _};

use crate::{
    file::{FileError, Span},
    pb::{Resource, Type},
    registry::Registry,
};

/// The text that is read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn error(&self, bytes: Range<usize>, message: impl Into<String>) -> FileError {
        FileError::new(self.file, Some(Span::of(self.text, bytes)), message)
    }
}

/// Says of what message the data of a resource are.
pub(super) struct DataTypes<'a> {
    pub(super) registry: &'a Registry,
    pub(super) resource: MessageDescriptor,
}

impl DataTypes<'_> {
    /// The message of an `Any` in `parent`; none if that is no resource, so
    /// that the `Any` has to say it itself.
    pub(super) fn of_data(
        &self,
        parent: &prost_reflect::DynamicMessage,
    ) -> Option<Result<MessageDescriptor, String>> {
        if parent.descriptor() != self.resource {
            return None;
        }
        let resource: Option<Resource> = parent.transcode_to().ok();
        let ty: Option<Type> = resource.and_then(|r| r.id).and_then(|id| id.r#type);
        Some(match ty {
            None => Err("ID.Type is nil".to_owned()),
            Some(ty) => match self.registry.resolve(&ty) {
                Some(registration) => Ok(registration.schema().descriptor().clone()),
                None => Err(format!("unknown resource type: {ty}")),
            },
        })
    }
}
