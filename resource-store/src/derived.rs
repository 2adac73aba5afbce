//! Support for `#[derive(Resource)]`: structs of serde as data, and what the macro calls.
//!
//! The data of a struct of serde are a `google.protobuf.Struct`: a JSON object that every
//! client of the protocol can read without knowing the type.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::ReflectMessage as _;
use prost_types::{ListValue, Struct, Value, value::Kind};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Number, Value as Json};

use crate::{
    error_chain::error_chain,
    name,
    registry::Registration,
    schema::{Schema, SchemaError},
    typed::{DataError, ResourceData},
};

/// The message of all structs of serde.
pub const STRUCT: &str = "google.protobuf.Struct";

/// The largest whole number that a `double`, the number of a `Struct`, holds exactly, as
/// all below it.
const LARGEST_EXACT: u64 = 1 << 53;

/// Returns `true` if a group is one, as the registry has it.
pub const fn is_valid_group(group: &str) -> bool {
    name::is_valid_group(group)
}

/// Returns `true` if a version of a group is one, as the registry has it.
pub const fn is_valid_group_version(version: &str) -> bool {
    name::is_valid_group_version(version)
}

/// Returns `true` if a kind is one, as the registry has it.
pub const fn is_valid_kind(kind: &str) -> bool {
    name::is_valid_kind(kind)
}

/// Returns the schema of [`STRUCT`].
pub fn schema() -> Schema {
    Schema::of_descriptor(Struct::default().descriptor())
}

/// Returns the registration of a struct of serde: what does not decode is invalid.
///
/// # Errors
///
/// If its schema is not available.
pub fn registration<T: ResourceData>() -> Result<Registration, SchemaError> {
    Ok(Registration::of::<T>(T::SCOPE)?.validate_decoded::<T>(|_| Ok(())))
}

/// Returns the JSON schema of a type.
#[cfg(feature = "schema")]
pub fn json_schema<T: schemars::JsonSchema>() -> Json {
    schemars::schema_for!(T).to_value()
}

/// Encodes a struct of serde.
///
/// # Errors
///
/// If it is no JSON object, or holds a whole number that a `double` does not hold exactly.
pub fn encode<T: ResourceData + Serialize>(data: &T) -> Result<Vec<u8>, DataError> {
    let refused = |reason: String| DataError::new(&T::resource_type().to_string(), reason);
    let json = serde_json::to_value(data).map_err(|error| refused(error.to_string()))?;
    let Json::Object(fields) = json else {
        return Err(refused("serde makes no JSON object of it".to_owned()));
    };
    let mut path = Vec::new();
    to_struct(fields, &mut path).map(|data| data.encode_to_vec()).map_err(refused)
}

/// Decodes a struct of serde.
///
/// # Errors
///
/// If the bytes are no `Struct`, or serde refuses it; the error names the field.
pub fn decode<T: ResourceData + DeserializeOwned>(bytes: &[u8]) -> Result<T, DataError> {
    let refused = |reason: String| DataError::new(&T::resource_type().to_string(), reason);
    let data = Struct::decode(bytes).map_err(|error| refused(error.to_string()))?;
    serde_path_to_error::deserialize(Json::Object(from_struct(data)))
        .map_err(|error| refused(format!("data.{}: {}", error.path(), error.inner())))
}

/// Decodes a message of prost.
///
/// # Errors
///
/// If the bytes are no such message.
pub fn decode_message<T: ResourceData + prost::Message>(bytes: &[u8]) -> Result<T, DataError> {
    T::decode(bytes).map_err(|error| DataError::new(T::MESSAGE, error_chain(&error)))
}

/// `path` leads to the object, for what is said of a field.
fn to_struct(fields: Map<String, Json>, path: &mut Vec<String>) -> Result<Struct, String> {
    let mut object = Struct { fields: BTreeMap::new() };
    for (name, value) in fields {
        path.push(name.clone());
        object.fields.insert(name, to_value(value, path)?);
        path.pop();
    }
    Ok(object)
}

fn to_value(json: Json, path: &mut Vec<String>) -> Result<Value, String> {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(value),
        Json::Number(number) => Kind::NumberValue(exact(&number, path)?),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            let mut values = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                path.push(index.to_string());
                values.push(to_value(item, path)?);
                path.pop();
            }
            Kind::ListValue(ListValue { values })
        }
        Json::Object(fields) => Kind::StructValue(to_struct(fields, path)?),
    };
    Ok(Value { kind: Some(kind) })
}

fn exact(number: &Number, path: &[String]) -> Result<f64, String> {
    let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    match number.as_f64() {
        Some(value) if whole.is_none_or(|whole| whole <= LARGEST_EXACT) => Ok(value),
        _ => Err(format!(
            "data.{}: {number} is beyond 2^53, the largest whole number that is stored exactly; \
             make it a string",
            path.join(".")
        )),
    }
}

fn from_struct(object: Struct) -> Map<String, Json> {
    object.fields.into_iter().map(|(name, value)| (name, from_value(value))).collect()
}

fn from_value(value: Value) -> Json {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => Json::Bool(value),
        Some(Kind::NumberValue(number)) => from_number(number),
        Some(Kind::StringValue(text)) => Json::String(text),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(from_value).collect(),
        Some(Kind::StructValue(object)) => Json::Object(from_struct(object)),
    }
}

/// A whole number where it is one: serde takes no `1.0` for an integer.
fn from_number(number: f64) -> Json {
    #[expect(clippy::cast_precision_loss, reason = "2^53 is exact")]
    let is_whole = number.fract() == 0.0 && number.abs() <= LARGEST_EXACT as f64;
    if is_whole && !(number == 0.0 && number.is_sign_negative()) {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and within 2^53")]
        return Json::from(number as i64);
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Json> {
        let exact = 1_i64 << 53;
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (-exact..=exact).prop_map(Json::from),
            any::<f64>()
                .prop_filter("a fraction", |number| number.is_finite() && number.fract() != 0.0)
                .prop_map(Json::from),
            ".{0,6}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[a-z_.]{0,3}", inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_survives(value in json()) {
            prop_assert_eq!(from_value(to_value(value.clone(), &mut Vec::new()).unwrap()), value);
        }
    }

    #[test]
    fn numbers_that_would_change_are_refused_with_their_place() {
        let largest = 1_u64 << 53;
        let object = |number: Json| serde_json::json!({"a": [{"b": number}]});
        let convert = |number| to_value(object(number), &mut Vec::new());
        assert!(
            convert(largest.into()).is_ok() && convert((-9_007_199_254_740_992_i64).into()).is_ok()
        );
        for number in [Json::from(largest + 1), Json::from(u64::MAX), Json::from(i64::MIN)] {
            let text = convert(number.clone()).unwrap_err();
            assert!(text.starts_with(&format!("data.a.0.b: {number} is beyond 2^53")), "{text}");
        }
    }

    #[test]
    fn zero_keeps_its_sign() {
        assert_eq!(from_number(0.0), Json::from(0));
        assert!(from_number(-0.0).as_f64().unwrap().is_sign_negative());
    }
}
