//! A resource in HCL.

mod message;
mod scalar;
mod source;
mod value;

use message::Decoder;
use source::{DataTypes, Source};

use super::FileError;
use crate::{pb::Resource, registry::Registry, schema};

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
