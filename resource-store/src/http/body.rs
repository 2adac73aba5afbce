//! JSON as Go's decoder and protobuf's read it.
//!
//! The outer object is read as Go reads a struct: keys in any case, the last of
//! several counts, and what follows the document is not looked at. What is
//! protobuf inside is read strictly: no name stands twice in one object.

use std::{cell::RefCell, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The parts of a body that count.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) metadata: Option<Value>,
    pub(super) owner: Option<Value>,
    pub(super) data: Option<Value>,
    pub(super) version: Option<Value>,
    /// The path of the first name that stands twice within `data` or `owner`.
    pub(super) duplicate: Option<String>,
}

/// Reads the first JSON document of `body`.
///
/// # Errors
///
/// If it is no JSON object; the text says where.
pub(super) fn parts(body: &[u8]) -> Result<Parts, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    reader.deserialize_map(PartsVisitor)
}

struct PartsVisitor;

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = Parts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parts, A::Error> {
        let duplicate = RefCell::new(None);
        let mut parts = Parts::default();
        while let Some(key) = map.next_key::<String>()? {
            let key = key.to_lowercase();
            let strict = Strict { path: &key, duplicate: &duplicate };
            match key.as_str() {
                "metadata" => parts.metadata = Some(map.next_value()?),
                "version" => parts.version = Some(map.next_value()?),
                "owner" => parts.owner = Some(map.next_value_seed(strict)?),
                "data" => parts.data = Some(map.next_value_seed(strict)?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        parts.duplicate = duplicate.into_inner();
        Ok(parts)
    }
}

/// Reads a value and notes the first name that stands twice in one object.
#[derive(Clone, Copy)]
struct Strict<'a> {
    path: &'a str,
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = format!("{}.{key}", self.path);
            let value = fields.next_value_seed(Strict { path: &path, ..self })?;
            if object.insert(key, value).is_some() {
                self.duplicate.borrow_mut().get_or_insert(path);
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-zäß\"\\\\]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_strict_value_is_the_value(value in value(), rest in ".{0,8}") {
            let body = format!("{{\"DATA\": {value}}} {rest}");
            let parts = parts(body.as_bytes()).unwrap();
            prop_assert_eq!((parts.data, parts.duplicate), (Some(value), None));
        }

        #[test]
        fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
            drop(parts(&body));
        }
    }

    #[test]
    fn the_first_duplicate_is_named() {
        let found = |body: &str| parts(body.as_bytes()).unwrap().duplicate;
        assert_eq!(
            found(r#"{"data": {"a": [{"b": 1, "b": 2}], "c": 1, "c": 2}}"#).unwrap(),
            "data.a.b"
        );
        assert_eq!(found(r#"{"data": {}, "data": {}, "x": {"a": 1, "a": 2}}"#), None);
    }

    #[test]
    fn nesting_is_bounded() {
        let body = format!("{{\"data\": {}", "[".repeat(100_000));
        assert!(parts(body.as_bytes()).is_err());
    }
}
