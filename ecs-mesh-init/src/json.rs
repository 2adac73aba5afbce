//! JSON whose objects keep the order of their members, because the documents written here are
//! compared with upstream's as text and read by people.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Number;

/// JSON value whose objects keep the order of their members.
#[derive(Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(Cow<'static, str>, Self)>),
}

/// Builds an object: `object! { "name" => value, … }`.
macro_rules! object {
    ($($name:literal => $value:expr),* $(,)?) => {
        $crate::json::Json::Object(vec![
            $((std::borrow::Cow::Borrowed($name), $crate::json::Json::from($value))),*
        ])
    };
}
pub(crate) use object;

impl Json {
    /// Parses one JSON value.
    ///
    /// # Errors
    ///
    /// When `text` is not one JSON value.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Renders the value indented by two spaces, without a final newline.
    pub(crate) fn to_pretty(&self) -> String {
        // Writing to a string cannot fail, and keys are strings.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                members.iter().find(|(known, _value)| known == name).map(|(_name, value)| value)
            }
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Appends a member to an object; does nothing to other values.
    pub(crate) fn push(&mut self, name: &'static str, value: impl Into<Self>) {
        if let Self::Object(members) = self {
            members.push((Cow::Borrowed(name), value.into()));
        }
    }

    /// Returns the object with one more member, if there is a value.
    pub(crate) fn with(mut self, name: &'static str, value: Option<impl Into<Self>>) -> Self {
        if let Some(value) = value {
            self.push(name, value);
        }
        self
    }
}

impl fmt::Debug for Json {
    // A bootstrap document may hold a token, so no member is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json(..)")
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<u16> for Json {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<Vec<Self>> for Json {
    fn from(items: Vec<Self>) -> Self {
        Self::Array(items)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Bool(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Number(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Number(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
                // JSON has no NaN or infinity, so `None` cannot occur here.
                Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Json, E> {
                Ok(Json::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Json::Array(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Json>()? {
                    members.push((Cow::Owned(name), value));
                }
                Ok(Json::Object(members))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_and_empty_objects_stay_on_one_line() {
        let text =
            "{\n  \"b\": {},\n  \"a\": [\n    1,\n    -2,\n    1.5,\n    null,\n    true\n  ]\n}";
        assert_eq!(Json::parse(text).unwrap().to_pretty(), text);
    }
}
