//! A resource in JSON.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{FileError, Position, Span};
use crate::{
    pb::{Any, Id, Resource, Status},
    registry::Registry,
    schema::{self, Schema},
};

/// The parts of a resource, each still text, so that errors know their place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    owner: Option<&'a RawValue>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    generation: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(borrow, default)]
    status: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

pub(super) fn read(file: &str, text: &str, registry: &Registry) -> Result<Resource, FileError> {
    let reader = Reader { file, text };
    let parts: Parts<'_> = serde_json::from_str(text)
        .map_err(|error| reader.refuse(Position { line: 1, column: 1 }, &error))?;
    let missing = || FileError::new(file, None, "\"id\" field need to be provided");
    let id: Id = reader.message("ID", parts.id.ok_or_else(missing)?)?;
    let owner = parts.owner.map(|owner| reader.message::<Id>("ID", owner)).transpose()?;
    let status = parts.status.unwrap_or_default().into_iter();
    let status: BTreeMap<String, Status> = status
        .map(|(key, value)| Ok((key, reader.message("Status", value)?)))
        .collect::<Result<_, FileError>>()?;
    let data = match parts.data {
        None => None,
        Some(data) => {
            let at = Some(reader.span(data));
            let ty = id
                .r#type
                .as_ref()
                .ok_or_else(|| FileError::new(file, at, "\"id.type\" field need to be provided"))?;
            let registration = registry
                .resolve(ty)
                .ok_or_else(|| FileError::new(file, at, format!("unknown resource type: {ty}")))?;
            Some(reader.data(data, registration.schema())?)
        }
    };
    Ok(Resource {
        id: Some(id),
        owner,
        version: parts.version,
        generation: parts.generation,
        metadata: parts.metadata.unwrap_or_default(),
        status,
        data,
    })
}

impl Reader<'_> {
    fn message<M: prost::Message + Default>(
        &self,
        name: &str,
        value: &RawValue,
    ) -> Result<M, FileError> {
        let full_name = format!("hashicorp.consul.resource.{name}");
        let internal = |error: String| FileError::new(self.file, None, error);
        let descriptor = schema::own_pool()
            .map_err(|error| internal(error.to_string()))?
            .get_message_by_name(&full_name)
            .ok_or_else(|| internal(format!("no message named {full_name}")))?;
        let message = self.dynamic(&descriptor, value)?;
        message.transcode_to().map_err(|error| internal(error.to_string()))
    }

    fn dynamic(
        &self,
        descriptor: &MessageDescriptor,
        value: &RawValue,
    ) -> Result<DynamicMessage, FileError> {
        if !value.get().starts_with('{') {
            return Err(FileError::new(self.file, Some(self.span(value)), "not a JSON object"));
        }
        let mut deserializer = serde_json::Deserializer::from_str(value.get());
        DynamicMessage::deserialize(descriptor.clone(), &mut deserializer)
            .and_then(|message| deserializer.end().map(|()| message))
            .map_err(|error| self.refuse(self.span(value).start, &error))
    }

    /// The data of a resource. An `@type` is accepted if it says what the type
    /// of the resource says, because the gRPC commands print one.
    fn data(&self, value: &RawValue, schema: &Schema) -> Result<Any, FileError> {
        let at = Some(self.span(value));
        let fields: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(value.get()).ok();
        let message = match fields {
            Some(mut fields) if fields.contains_key("@type") => {
                let url = fields.remove("@type").map(RawValue::get).unwrap_or_default();
                let named: Option<String> = serde_json::from_str(url).ok();
                if !named.is_some_and(|named| schema.matches_url(&named)) {
                    let text = format!("data is {url}, not {}", schema.message_name());
                    return Err(FileError::new(self.file, at, text));
                }
                let rest = serde_json::to_value(fields)
                    .map_err(|error| FileError::new(self.file, at, error.to_string()))?;
                DynamicMessage::deserialize(schema.descriptor().clone(), rest)
                    .map_err(|error| FileError::new(self.file, at, error.to_string()))?
            }
            _ => self.dynamic(schema.descriptor(), value)?,
        };
        Ok(Any { type_url: schema.type_url(), value: prost::Message::encode_to_vec(&message) })
    }

    /// Returns the place of a part of the text.
    fn span(&self, part: &RawValue) -> Span {
        // The part borrows from the text, so this is where it begins.
        let start = (part.get().as_ptr().addr()).saturating_sub(self.text.as_ptr().addr());
        Span::of(self.text, start..start + part.get().len())
    }

    fn refuse(&self, outer: Position, error: &serde_json::Error) -> FileError {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let place = format!(" at line {line} column {column}");
        let message = message.strip_suffix(&place).unwrap_or(&message);
        FileError::new(self.file, Some(Span::shifted(outer, line, column)), message)
    }
}
