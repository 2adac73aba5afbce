//! JSON as Consul reads it: Go's `encoding/json`.
//!
//! Names of members match without regard to case, `null` stands for the empty
//! value of any type, and what follows the first value is not looked at. Errors
//! have Go's words as far as clients can know them: the names of Go's own types
//! are left out.
//!
//! Source: Go 1.21 `encoding/json`, compared with Consul 1.8.7 and 1.19.2.

use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde_json::{Map, Value};

/// Reads a body. An empty one is an error, as it is to Go's decoder.
pub(super) fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    from_value(value(body)?)
}

/// Reads a value that was read before.
pub(super) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Go { value, field: None })
}

/// Reads a body without giving it a type.
pub(super) fn value(body: &[u8]) -> Result<Value, Error> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    match values.next() {
        None => Err(Error("EOF".to_owned())),
        Some(read) => read.map_err(|error| Error(syntax(body, &error))),
    }
}

/// Takes the member out of an object that has this name in any case.
pub(super) fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    if let Some(found) = fields.remove(name) {
        return Some(found);
    }
    let key = fields.keys().find(|key| key.eq_ignore_ascii_case(name))?.clone();
    fields.remove(&key)
}

/// Why a body cannot be read, in Go's words.
#[derive(Debug)]
pub(super) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }

    fn unknown_field(field: &str, _known: &'static [&'static str]) -> Self {
        Self(format!("json: unknown field {field:?}"))
    }
}

/// Go's words for text that is no JSON.
fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected EOF".to_owned();
    }
    let line_start = body
        .split(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    let at = line_start + error.column().saturating_sub(1);
    let rest = String::from_utf8_lossy(body.get(at..).unwrap_or_default()).into_owned();
    let found = rest.chars().next().unwrap_or_default();
    let text = error.to_string();
    let place = if text.starts_with("expected ident") {
        literal(body, at)
    } else if text.starts_with("key must be a string") {
        "looking for beginning of object key string".to_owned()
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair".to_owned()
    } else if text.starts_with("expected `,` or `]`") {
        "after array element".to_owned()
    } else if text.starts_with("expected `:`") {
        "after object key".to_owned()
    } else {
        "looking for beginning of value".to_owned()
    };
    format!("invalid character {} {place}", quoted(found))
}

fn quoted(found: char) -> String {
    match found {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        found => format!("'{}'", found.escape_default()),
    }
}

/// The place within a literal that is misspelt.
fn literal(body: &[u8], at: usize) -> String {
    for word in ["null", "true", "false"] {
        for (length, expected) in word.char_indices().skip(1) {
            let start = at.saturating_sub(length);
            if length <= at
                && body.get(start..at) == word.as_bytes().get(..length)
                && body.get(at).copied() != word.as_bytes().get(length).copied()
            {
                return format!("in literal {word} (expecting {})", quoted(expected));
            }
        }
    }
    "looking for beginning of value".to_owned()
}

/// A value that is read as Go reads it.
struct Go {
    value: Value,
    field: Option<String>,
}

impl Go {
    fn inner(value: Value) -> Self {
        Self { value, field: None }
    }

    /// The error for a value of a type that does not fit.
    fn unfit(&self) -> Error {
        let found = match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => {
                return Error(format!(
                    "json: cannot unmarshal number {number} into {}",
                    self.place()
                ));
            }
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Error(format!("json: cannot unmarshal {found} into {}", self.place()))
    }

    fn place(&self) -> String {
        self.field
            .as_ref()
            .map_or_else(|| "the body".to_owned(), |field| format!("the field {field}"))
    }

    fn number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Null => visitor.visit_u64(0),
            Value::Number(number) => {
                let place = self.place();
                let read = match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => visitor.visit_u64(number),
                    (None, Some(number)) => visitor.visit_i64(number),
                    (None, None) => Err(self.unfit()),
                };
                read.map_err(|_range: Error| {
                    Error(format!("json: cannot unmarshal number {number} into {place}"))
                })
            }
            _ => Err(self.unfit()),
        }
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_string(String::new()),
            Value::String(text) => visitor.visit_string(text),
            _ => Err(self.unfit()),
        }
    }
}

macro_rules! read_by {
    ($inner:ident: $($method:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.$inner(visitor)
        })+
    };
}

impl<'de> Deserializer<'de> for Go {
    type Error = Error;

    read_by!(number: deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64,
        deserialize_i128, deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64,
        deserialize_u128);
    read_by!(text: deserialize_str, deserialize_string, deserialize_char, deserialize_identifier,
        deserialize_bytes, deserialize_byte_buf);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(_) => self.value.deserialize_any(visitor).map_err(Error::custom),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(list) => visitor.visit_seq(List(list.into_iter())),
            Value::Object(fields) => visitor.visit_map(Members::of(fields, &[])),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(value),
            _ => Err(self.unfit()),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Null => visitor.visit_f64(0.0),
            Value::Number(number) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            _ => Err(self.unfit()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_seq(List(Vec::new().into_iter())),
            Value::Array(list) => visitor.visit_seq(List(list.into_iter())),
            _ => Err(self.unfit()),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_map(Members::of(Map::new(), fields)),
            Value::Object(found) => visitor.visit_map(Members::of(found, fields)),
            _ => Err(self.unfit()),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor).map_err(Error::custom)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// The items of a list.
struct List(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for List {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|value| seed.deserialize(Go::inner(value))).transpose()
    }
}

/// The members of an object, under the names that its reader knows them by.
struct Members {
    rest: std::vec::IntoIter<(String, Value)>,
    next: Option<(String, Value)>,
}

impl Members {
    fn of(found: Map<String, Value>, fields: &[&str]) -> Self {
        let mut members: Vec<(String, Value)> = Vec::with_capacity(found.len());
        for (name, value) in found {
            let known = fields
                .iter()
                .find(|field| **field == name)
                .or_else(|| fields.iter().find(|field| field.eq_ignore_ascii_case(&name)));
            let name = known.map_or(name, |known| (*known).to_owned());
            // The last one of a name counts.
            members.retain(|(other, _)| *other != name);
            members.push((name, value));
        }
        Self { rest: members.into_iter(), next: None }
    }
}

impl<'de> MapAccess<'de> for Members {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.next = Some((name.clone(), value));
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.next.take().unwrap_or_default();
        seed.deserialize(Go { value, field: Some(name) })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Inner {
        port: i64,
        tags: Vec<String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
    struct Outer {
        name: String,
        inner: Inner,
        more: Option<Inner>,
        on: bool,
        meta: std::collections::BTreeMap<String, String>,
    }

    #[test]
    fn names_match_in_any_case_and_null_is_the_empty_value() {
        let body = br#"{"NAME":"a","inner":{"pOrT":7,"tags":null},"More":null,"on":true,"meta":{"Key":"v"}} x"#;
        let read: Outer = from_slice(body).unwrap();
        assert_eq!(
            (read.name.as_str(), read.inner.port, read.on, &read.more),
            ("a", 7, true, &None)
        );
        assert_eq!(read.meta["Key"], "v");
        assert_eq!(from_slice::<Outer>(b"null").unwrap(), Outer::default());
    }

    #[test]
    fn errors_have_the_words_of_go() {
        let cases: [(&str, &str); 12] = [
            ("", "EOF"),
            ("{\"Name\": \"a\"", "unexpected EOF"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("{Name: 1}", "invalid character 'N' looking for beginning of object key string"),
            ("{\"Name\": lock}", "invalid character 'l' looking for beginning of value"),
            ("{\"Name\" 1}", "invalid character '1' after object key"),
            ("{\"Name\": \"a\" \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[]", "json: cannot unmarshal array into the body"),
            ("{\"Name\": 1}", "json: cannot unmarshal number into the field Name"),
            (
                "{\"inner\": {\"port\": 1.5}}",
                "json: cannot unmarshal number 1.5 into the field Port",
            ),
            ("{\"Nonsense\": 1}", "json: unknown field \"Nonsense\""),
        ];
        for (body, words) in cases {
            let error = from_slice::<Outer>(body.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), words, "{body}");
        }
    }
}
