//! A resource in HCL.

mod message;
mod scalar;
mod value;

use std::ops::Range;

use message::Decoder;
use prost_reflect::{MessageDescriptor, ReflectMessage as _};

use super::{FileError, Span};
use crate::{
    pb::{Resource, Type},
    registry::Registry,
    schema,
};

pub(super) fn read(file: &str, text: &str, registry: &Registry) -> Result<Resource, FileError> {
    let source = Source { file, text };
    let body = hcl_edit::parser::parse_body(text).map_err(|error| {
        let offset = error.location().offset();
        source.error(offset..offset, error.message())
    })?;
    let internal = |error: String| FileError::new(file, None, error);
    let descriptor = schema::own_pool()
        .map_err(|error| internal(error.to_string()))?
        .get_message_by_name("hashicorp.consul.resource.Resource")
        .ok_or_else(|| internal("no message named Resource".to_owned()))?;
    let types = DataTypes { registry, resource: descriptor.clone() };
    let message = Decoder { source, types }.body(&descriptor, &body)?;
    message.transcode_to().map_err(|error| internal(error.to_string()))
}

/// The text that is read.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, bytes: Range<usize>, message: impl Into<String>) -> FileError {
        FileError::new(self.file, Some(Span::of(self.text, bytes)), message)
    }
}

/// Says of what message the data of a resource are.
struct DataTypes<'a> {
    registry: &'a Registry,
    resource: MessageDescriptor,
}

impl DataTypes<'_> {
    /// The message of an `Any` in `parent`; none if that is no resource, so
    /// that the `Any` has to say it itself.
    fn of_data(
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
