//! Resources as JSON, by the proto3 mapping.
//!
//! Names are lowerCamelCase, empty fields are left out, enums are names, 64-bit
//! numbers are strings, keys are sorted. `data` has no `@type`: it follows from
//! the type of the resource.
//!
//! Source: `internal/resource/http/http.go`, Consul 1.21.

use std::collections::BTreeSet;

use prost_reflect::{
    DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, SerializeOptions,
};
use serde_json::Value;

use crate::{
    pb::{Any, Id, Resource},
    schema::{self, Schema},
};

/// A value cannot be turned into JSON or back.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

impl JsonError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Turns resources into JSON and back.
///
/// Holds the descriptors of the protocol; make one and keep it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JsonCodec {
    resource: MessageDescriptor,
    id: MessageDescriptor,
    #[cfg(any(feature = "http", feature = "http-client"))]
    status: MessageDescriptor,
}

impl JsonCodec {
    /// A codec for the protocol of this crate.
    ///
    /// # Errors
    ///
    /// If the descriptors built into this crate are broken, which its tests
    /// rule out.
    pub fn new() -> Result<Self, JsonError> {
        let pool = schema::own_pool().map_err(JsonError::of)?;
        let message = |name: &str| {
            let name = format!("hashicorp.consul.resource.{name}");
            pool.get_message_by_name(&name)
                .ok_or_else(|| JsonError(format!("no message named {name}")))
        };
        Ok(Self {
            resource: message("Resource")?,
            id: message("ID")?,
            #[cfg(any(feature = "http", feature = "http-client"))]
            status: message("Status")?,
        })
    }

    /// A resource with its data, which `schema` describes.
    ///
    /// # Errors
    ///
    /// If the data is not of the schema.
    pub fn resource(&self, resource: &Resource, schema: &Schema) -> Result<Value, JsonError> {
        let mut value = self.resource_without_data(resource)?;
        if let (Some(data), Value::Object(fields)) = (&resource.data, &mut value) {
            fields
                .insert("data".to_owned(), to_json(&schema.decode(data).map_err(JsonError::of)?)?);
        }
        Ok(value)
    }

    /// A resource without its data.
    pub(crate) fn resource_without_data(&self, resource: &Resource) -> Result<Value, JsonError> {
        let bare = Resource { data: None, ..resource.clone() };
        to_json(&transcode(&self.resource, &bare)?)
    }

    /// The same with an `@type` in the data that names its message.
    ///
    /// # Errors
    ///
    /// If the data is not of the schema.
    pub fn resource_with_type(
        &self,
        resource: &Resource,
        schema: &Schema,
    ) -> Result<Value, JsonError> {
        let mut value = self.resource(resource, schema)?;
        if let Some(Value::Object(data)) = value.get_mut("data") {
            data.insert("@type".to_owned(), Value::String(schema.type_url()));
        }
        Ok(value)
    }

    /// Reads the data of a resource. Unknown fields are errors.
    ///
    /// # Errors
    ///
    /// If the value does not follow the schema.
    pub fn read_data(&self, value: &Value, schema: &Schema) -> Result<Any, JsonError> {
        let message = from_json(schema.descriptor(), value)?;
        Ok(Any { type_url: schema.type_url(), value: prost::Message::encode_to_vec(&message) })
    }

    /// Reads an identity. Unknown fields are errors; names may be in either
    /// case style.
    ///
    /// # Errors
    ///
    /// If the value is no identity.
    pub fn read_id(&self, value: &Value) -> Result<Id, JsonError> {
        from_json(&self.id, value)?.transcode_to::<Id>().map_err(JsonError::of)
    }

    /// A status.
    #[cfg(feature = "http-client")]
    pub(crate) fn status(&self, status: &crate::pb::Status) -> Result<Value, JsonError> {
        to_json(&transcode(&self.status, status)?)
    }

    /// Reads a status. Unknown fields are errors.
    #[cfg(feature = "http")]
    pub(crate) fn read_status(&self, value: &Value) -> Result<crate::pb::Status, JsonError> {
        from_json(&self.status, value)?.transcode_to().map_err(JsonError::of)
    }

    /// Reads a whole resource as [`JsonCodec::resource`] writes it.
    ///
    /// `find` gives the schema of a type. An `@type` in the data is accepted
    /// if it names the message of the schema.
    ///
    /// # Errors
    ///
    /// If the value is no resource, or of a type that `find` does not know.
    pub fn read_resource(
        &self,
        value: &Value,
        find: impl Fn(&crate::pb::Type) -> Option<Schema>,
    ) -> Result<Resource, JsonError> {
        let Value::Object(fields) = value else {
            return Err(JsonError("not a JSON object".to_owned()));
        };
        let mut fields = fields.clone();
        let data = fields.remove("data");
        let bare = from_json(&self.resource, &Value::Object(fields))?;
        let mut resource = bare.transcode_to::<Resource>().map_err(JsonError::of)?;
        let Some(data) = data else { return Ok(resource) };
        let ty = resource
            .resource_type()
            .ok_or_else(|| JsonError("\"id.type\" field need to be provided".to_owned()))?;
        let schema = find(ty).ok_or_else(|| JsonError(format!("unknown resource type: {ty}")))?;
        resource.data = Some(self.read_data(&without_type(data, &schema)?, &schema)?);
        Ok(resource)
    }
}

/// Removes an `@type` that says what the schema says.
fn without_type(mut data: Value, schema: &Schema) -> Result<Value, JsonError> {
    if let Value::Object(fields) = &mut data
        && let Some(named) = fields.remove("@type")
    {
        let matches =
            named.as_str().is_some_and(|url| schema::url_names(url, schema.message_name()));
        if !matches {
            return Err(JsonError(format!("data is {named}, not {}", schema.message_name())));
        }
    }
    Ok(data)
}

fn transcode<M: prost::Message>(
    descriptor: &MessageDescriptor,
    message: &M,
) -> Result<DynamicMessage, JsonError> {
    DynamicMessage::decode(descriptor.clone(), message.encode_to_vec().as_slice())
        .map_err(JsonError::of)
}

fn to_json(message: &DynamicMessage) -> Result<Value, JsonError> {
    message
        .serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
        .map_err(JsonError::of)
}

fn from_json(descriptor: &MessageDescriptor, value: &Value) -> Result<DynamicMessage, JsonError> {
    if !value.is_object() {
        return Err(JsonError("not a JSON object".to_owned()));
    }
    refuse_fields_given_twice(descriptor, value)?;
    let options = DeserializeOptions::new();
    DynamicMessage::deserialize_with_options(descriptor.clone(), value, &options)
        .map_err(JsonError::of)
}

/// Refuses an object that names one field in both case styles, of which the
/// library would take the last.
fn refuse_fields_given_twice(
    descriptor: &MessageDescriptor,
    value: &Value,
) -> Result<(), JsonError> {
    let Value::Object(fields) = value else { return Ok(()) };
    // Has a form of its own in JSON, in which nothing is named as its fields are.
    if descriptor.full_name() == "google.protobuf.Struct" {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    for (name, value) in fields {
        let by_name = || descriptor.get_field_by_name(name);
        let Some(field) = descriptor.get_field_by_json_name(name).or_else(by_name) else {
            continue;
        };
        if !seen.insert(field.number()) {
            return Err(JsonError(format!("the field {} is given twice", field.json_name())));
        }
        let kind = if field.is_map() {
            match field.kind() {
                Kind::Message(entry) => entry.map_entry_value_field().kind(),
                other => other,
            }
        } else {
            field.kind()
        };
        let Kind::Message(message) = kind else { continue };
        let inner: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(entries) if field.is_map() => entries.values().collect(),
            other => vec![other],
        };
        inner.into_iter().try_for_each(|value| refuse_fields_given_twice(&message, value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{demo, typed::ResourceData as _};

    fn schema() -> Schema {
        demo::v2::Artist::schema().unwrap()
    }

    #[test]
    fn a_resource_shows_its_data_without_a_type() {
        let mut resource = demo::artist("korn").encode();
        resource.version = "3".to_owned();
        let value = JsonCodec::new().unwrap().resource(&resource, &schema()).unwrap();
        assert_eq!(
            value,
            json!({
                "id": {
                    "name": "korn",
                    "tenancy": {"namespace": "default", "partition": "default"},
                    "type": {"group": "demo", "groupVersion": "v2", "kind": "Artist"}
                },
                "version": "3",
                "data": {"name": "korn", "genre": "GENRE_METAL"}
            })
        );
    }

    #[test]
    fn a_resource_without_data_shows_none() {
        let resource = Resource { data: None, ..demo::artist("korn").encode() };
        let value = JsonCodec::new().unwrap().resource(&resource, &schema()).unwrap();
        assert_eq!(value.get("data"), None);
    }

    #[test]
    fn what_was_written_reads_back() {
        let codec = JsonCodec::new().unwrap();
        let resource = demo::artist("korn").encode();
        let value = codec.resource(&resource, &schema()).unwrap();
        assert_eq!(codec.read_resource(&value, |_| Some(schema())).unwrap(), resource);
        let error = codec.read_resource(&value, |_| None).unwrap_err();
        assert_eq!(error.to_string(), "unknown resource type: demo.v2.Artist");
    }

    #[test]
    fn identities_read_in_either_case_style_and_nothing_else() {
        let codec = JsonCodec::new().unwrap();
        for key in ["groupVersion", "group_version"] {
            let value = json!({"name": "x", "type": {"group": "g", key: "v1", "kind": "K"}});
            assert_eq!(codec.read_id(&value).unwrap().r#type.unwrap().to_string(), "g.v1.K");
        }
        assert!(codec.read_id(&json!({"nome": "x"})).is_err());
        assert!(codec.read_data(&json!({"nome": "x"}), &schema()).is_err());
        assert!(codec.read_data(&json!("x"), &schema()).is_err());
    }
}
