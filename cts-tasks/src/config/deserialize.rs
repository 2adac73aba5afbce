//! Reads a [`ConfigValue`] into a type of serde's, with diagnostics at their places.

use std::{cell::RefCell, fmt, str::FromStr};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
    value::{StrDeserializer, StringDeserializer},
};

use super::{
    decode::{Group, group_by, join_path, lone, named_as, parse_bool, similar},
    value::{ConfigValue, Entry, ValueKind},
};
use crate::{Diagnostic, Place};

impl ConfigValue {
    /// Reads the value into a type that derives serde's `Deserialize`.
    ///
    /// It reads as the rest of the configuration does: keys in upper or lower case,
    /// `"8080"` for a number and `8080` for a string, `"true"` for a boolean, one value
    /// for a list of one and the other way round. Blocks that stand more than once are a
    /// list; those with labels are a map as well. Durations are read by
    /// [`consul_watch::GoDuration`].
    ///
    /// ```
    /// use cts_tasks::{ConfigValue, Source};
    ///
    /// #[derive(Debug, serde::Deserialize)]
    /// struct Settings {
    ///     reload: String,
    ///     #[serde(default)]
    ///     workers: u8,
    /// }
    ///
    /// let text = "reload  = \"systemctl reload haproxy\"\nworkers = 300\nworker  = 1\n";
    /// let source = Source { path: "sync.hcl".into(), text: text.to_owned() };
    /// let mistakes = ConfigValue::parse(source).unwrap().deserialize_into::<Settings>().unwrap_err();
    ///
    /// let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    /// assert_eq!(mistakes, [
    ///     "sync.hcl:3:1: unknown key: worker (did you mean workers?)",
    ///     "sync.hcl:2:11: workers: expected a whole number from 0 to 255",
    /// ]);
    /// ```
    ///
    /// # Errors
    ///
    /// Every key that the type does not have, and the first value that does not fit or is
    /// missing, each with its place. No message holds a value, except what a
    /// `Deserialize` written by hand puts into its own.
    pub fn deserialize_into<T: DeserializeOwned>(&self) -> Result<T, Vec<Diagnostic>> {
        self.deserialize_at("")
    }

    /// As [`ConfigValue::deserialize_into`], where messages name `path` before the key.
    pub(crate) fn deserialize_at<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<T, Vec<Diagnostic>> {
        let unknown = RefCell::default();
        let node = Node { stands: Stands::Value(self), path: path.to_owned(), unknown: &unknown };
        let read = node.locating(T::deserialize);
        let mut found = unknown.into_inner();
        match read {
            Ok(read) if found.is_empty() => Ok(read),
            Ok(_) => Err(found),
            Err(mistake) => {
                found.push(mistake.into());
                Err(found)
            }
        }
    }
}

/// The place in the configuration that is read.
struct Node<'v> {
    stands: Stands<'v>,
    path: String,
    /// Keys that the type does not have.
    unknown: &'v RefCell<Vec<Diagnostic>>,
}

/// What stands there.
enum Stands<'v> {
    Value(&'v ConfigValue),
    /// A key that stands more than once.
    Repeated(Vec<&'v Entry>),
}

impl<'v> Node<'v> {
    fn of(entries: Vec<&'v Entry>, path: String, unknown: &'v RefCell<Vec<Diagnostic>>) -> Self {
        let stands = match entries.as_slice() {
            [entry] => Stands::Value(&entry.value),
            _ => Stands::Repeated(entries),
        };
        Self { stands, path, unknown }
    }

    fn below(&self, value: &'v ConfigValue, path: String) -> Self {
        Self { stands: Stands::Value(value), path, unknown: self.unknown }
    }

    fn place(&self) -> Option<Place> {
        match &self.stands {
            Stands::Value(value) => value.place.clone(),
            Stands::Repeated(entries) => entries.last().and_then(|entry| entry.key_place.clone()),
        }
    }

    /// Gives a mistake that has no place yet this one.
    fn locating<T>(self, read: impl FnOnce(Self) -> Result<T, Mistake>) -> Result<T, Mistake> {
        let (path, place) = (self.path.clone(), self.place());
        read(self).map_err(|mistake| mistake.locate(&path, place))
    }

    /// The value where only one may stand.
    fn only(&self) -> Result<&'v ConfigValue, Mistake> {
        match &self.stands {
            Stands::Value(value) => Ok(lone(value)),
            Stands::Repeated(entries) if entries.iter().all(|entry| entry.block) => Err(Mistake {
                help: Some("keep one of the blocks, with the settings of both".to_owned()),
                ..Mistake::new("only one such block can be configured")
            }),
            Stands::Repeated(_) => Err(Mistake {
                help: Some("keep one of them".to_owned()),
                ..Mistake::new("is set more than once")
            }),
        }
    }

    /// The values where a list is due; one value is a list of one.
    fn items(&self) -> Vec<&'v ConfigValue> {
        match &self.stands {
            Stands::Repeated(entries) => entries.iter().map(|entry| &entry.value).collect(),
            Stands::Value(value) => match &value.kind {
                ValueKind::List(items) => items.iter().collect(),
                _ => vec![value],
            },
        }
    }

    /// The entries where an object is due. Blocks that differ by their labels are one object.
    fn entries(&self) -> Result<Vec<&'v Entry>, Mistake> {
        if let Stands::Repeated(entries) = &self.stands
            && entries.iter().all(|entry| entry.folded_label().is_some())
        {
            let bodies = entries.iter().filter_map(|entry| entry.value.entries());
            return Ok(bodies.flatten().collect());
        }
        let value = self.only()?;
        let entries = value.entries().ok_or_else(|| Mistake::expected("a block", value))?;
        Ok(entries.iter().collect())
    }

    fn text(&self) -> Result<String, Mistake> {
        let value = self.only()?;
        match &value.kind {
            ValueKind::String(text) => Ok(text.clone()),
            ValueKind::Number(number) => Ok(number.to_string()),
            _ => Err(Mistake::expected("a string", value)),
        }
    }

    fn flag(&self) -> Result<bool, Mistake> {
        let value = self.only()?;
        let read = match &value.kind {
            ValueKind::Bool(flag) => Some(*flag),
            ValueKind::String(text) => parse_bool(text),
            _ => None,
        };
        read.ok_or_else(|| Mistake {
            help: Some("write true or false".to_owned()),
            ..Mistake::expected("a boolean", value)
        })
    }

    /// A number as `expected` says.
    fn number<T: FromStr>(&self, expected: impl fmt::Display) -> Result<T, Mistake> {
        let value = self.only()?;
        let text = match &value.kind {
            ValueKind::Number(number) => number.as_str(),
            ValueKind::String(text) => text,
            _ => return Err(Mistake::expected(expected, value)),
        };
        text.parse().map_err(|_: T::Err| Mistake::new(format!("expected {expected}")))
    }

    fn members(self, fields: Option<&'static [&'static str]>) -> Result<Members<'v>, Mistake> {
        let entries = self.entries()?;
        let named = |key| fields.and_then(|fields| named_as(key, fields)).unwrap_or(key);
        let (known, unknown): (Vec<_>, Vec<_>) = group_by(entries, named)
            .into_iter()
            .partition(|group| fields.is_none_or(|fields| fields.contains(&group.key)));
        for group in unknown {
            self.unknown.borrow_mut().push(self.unknown_key(&group, fields.unwrap_or_default()));
        }
        Ok(Members {
            known: known.into_iter(),
            value: None,
            path: self.path,
            unknown: self.unknown,
        })
    }

    fn unknown_key(&self, group: &Group<'_>, fields: &'static [&'static str]) -> Diagnostic {
        let path = join_path(&self.path, group.key);
        let help = match similar(group.key, fields) {
            Some(similar) => format!("did you mean {similar}?"),
            None if fields.is_empty() => "the block has no keys".to_owned(),
            None => format!("the keys are {}", fields.join(", ")),
        };
        let place = group.entries.first().and_then(|entry| entry.key_place.clone());
        Diagnostic::error(format!("unknown key: {path}")).at(place).help(help)
    }
}

/// Reads whole numbers, each within its type.
macro_rules! whole_numbers {
    ($($method:ident, $visit:ident, $type:ty;)*) => {$(
        fn $method<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
            let range = format_args!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX);
            visitor.$visit(self.number::<$type>(range)?)
        }
    )*};
}

impl<'v> Deserializer<'v> for Node<'v> {
    type Error = Mistake;

    /// As the value stands: what is repeated is a list, or a map if it has labels.
    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let value = match &self.stands {
            Stands::Value(value) => *value,
            Stands::Repeated(entries) => {
                let labelled = entries.iter().all(|entry| entry.folded_label().is_some());
                return if labelled {
                    self.deserialize_map(visitor)
                } else {
                    self.deserialize_seq(visitor)
                };
            }
        };
        match &value.kind {
            ValueKind::Null => visitor.visit_unit(),
            ValueKind::Bool(flag) => visitor.visit_bool(*flag),
            ValueKind::String(text) => visitor.visit_str(text),
            ValueKind::Number(number) => {
                let text = number.as_str();
                if let Ok(number) = text.parse() {
                    visitor.visit_u64(number)
                } else if let Ok(number) = text.parse() {
                    visitor.visit_i64(number)
                } else {
                    visitor.visit_f64(self.number("a number")?)
                }
            }
            ValueKind::List(_) => self.deserialize_seq(visitor),
            ValueKind::Object(_) => self.deserialize_map(visitor),
        }
    }

    whole_numbers! {
        deserialize_i8, visit_i8, i8;
        deserialize_i16, visit_i16, i16;
        deserialize_i32, visit_i32, i32;
        deserialize_i64, visit_i64, i64;
        deserialize_u8, visit_u8, u8;
        deserialize_u16, visit_u16, u16;
        deserialize_u32, visit_u32, u32;
        deserialize_u64, visit_u64, u64;
    }

    fn deserialize_f32<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_f32(self.number("a number")?)
    }

    fn deserialize_f64<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_f64(self.number("a number")?)
    }

    fn deserialize_bool<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_bool(self.flag()?)
    }

    fn deserialize_char<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_str<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_byte_buf(self.text()?.into_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.stands {
            Stands::Value(ConfigValue { kind: ValueKind::Null, .. }) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let value = self.only()?;
        match &value.kind {
            ValueKind::Null => visitor.visit_unit(),
            ValueKind::Object(entries) if entries.is_empty() => visitor.visit_unit(),
            _ => Err(Mistake::expected("nothing", value)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_seq(Items { items: self.items().into_iter().enumerate(), node: &self })
    }

    fn deserialize_tuple<V: Visitor<'v>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_map(self.members(None)?)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_map(self.members(Some(fields))?)
    }

    /// A variant is its name, or a block or an object with its name as the only key.
    fn deserialize_enum<V: Visitor<'v>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let value = self.only()?;
        let (name, inner) = match &value.kind {
            ValueKind::String(name) => (name.as_str(), None),
            ValueKind::Object(entries) => match entries.as_slice() {
                [entry] => (entry.key.as_str(), Some(&entry.value)),
                _ => return Err(Mistake::new(one_of(variants))),
            },
            _ => return Err(Mistake::expected(Alternatives(variants), value)),
        };
        let name = named_as(name, variants).ok_or_else(|| Mistake::new(one_of(variants)))?;
        visitor.visit_enum(Variant { name, inner, node: &self })
    }

    fn deserialize_identifier<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_unit()
    }
}

fn one_of(variants: &[&str]) -> String {
    format!("expected {}", Alternatives(variants))
}

/// Names among which one is due.
struct Alternatives<'a>(&'a [&'a str]);

impl fmt::Display for Alternatives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.0.join(", "))
    }
}

/// The items of a list, one after the other.
struct Items<'n, 'v> {
    items: std::iter::Enumerate<std::vec::IntoIter<&'v ConfigValue>>,
    node: &'n Node<'v>,
}

impl<'v> SeqAccess<'v> for Items<'_, 'v> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mistake> {
        let Some((position, item)) = self.items.next() else { return Ok(None) };
        let node = self.node.below(item, format!("{}[{position}]", self.node.path));
        node.locating(|node| seed.deserialize(node)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The keys of an object, each with what stands there.
struct Members<'v> {
    known: std::vec::IntoIter<Group<'v>>,
    value: Option<Node<'v>>,
    path: String,
    unknown: &'v RefCell<Vec<Diagnostic>>,
}

impl<'v> MapAccess<'v> for Members<'v> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'v>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mistake> {
        let Some(Group { key, entries }) = self.known.next() else { return Ok(None) };
        let path = join_path(&self.path, key);
        let place = entries.first().and_then(|entry| entry.key_place.clone());
        let name: StrDeserializer<'_, Mistake> = key.into_deserializer();
        let name = seed.deserialize(name).map_err(|mistake| mistake.locate(&path, place))?;
        self.value = Some(Node::of(entries, path, self.unknown));
        Ok(Some(name))
    }

    fn next_value_seed<V: DeserializeSeed<'v>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let node = self.value.take().ok_or_else(|| Mistake::new("a value was read twice"))?;
        node.locating(|node| seed.deserialize(node))
    }
}

/// A variant of an enumeration.
struct Variant<'n, 'v> {
    name: &'static str,
    inner: Option<&'v ConfigValue>,
    node: &'n Node<'v>,
}

impl<'v> Variant<'_, 'v> {
    fn inner(self) -> Result<Node<'v>, Mistake> {
        let inner = self.inner.ok_or_else(|| {
            Mistake::new(format!("{} needs a block or a value of its own", self.name))
        })?;
        Ok(self.node.below(inner, join_path(&self.node.path, self.name)))
    }
}

impl<'v> EnumAccess<'v> for Variant<'_, 'v> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'v>>(self, seed: T) -> Result<(T::Value, Self), Mistake> {
        let name: StringDeserializer<Mistake> = self.name.to_owned().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'v> VariantAccess<'v> for Variant<'_, 'v> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        if self.inner.is_none() {
            return Ok(());
        }
        self.inner()?.locating(de::Deserialize::deserialize)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'v>>(self, seed: T) -> Result<T::Value, Mistake> {
        self.inner()?.locating(|node| seed.deserialize(node))
    }

    fn tuple_variant<V: Visitor<'v>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.inner()?.locating(|node| node.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'v>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.inner()?.locating(|node| node.deserialize_struct("", fields, visitor))
    }
}

/// What does not fit, and where.
#[derive(Debug)]
struct Mistake {
    message: String,
    help: Option<String>,
    place: Option<Place>,
    /// Whether the message names the key.
    located: bool,
}

impl Mistake {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, place: None, located: false }
    }

    fn expected(expected: impl fmt::Display, found: &ConfigValue) -> Self {
        Self::new(format!("expected {expected}, found {}", found.describe()))
    }

    /// Names the key and the place, unless one below them is named already.
    fn locate(mut self, path: &str, place: Option<Place>) -> Self {
        if !self.located {
            self.located = true;
            self.place = place;
            if !path.is_empty() {
                self.message = format!("{path}: {}", self.message);
            }
        }
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl From<Mistake> for Diagnostic {
    fn from(mistake: Mistake) -> Self {
        let mut diagnostic = Self::error(mistake.message).at(mistake.place);
        diagnostic.help = mistake.help;
        diagnostic
    }
}

/// serde's own texts show the value, which may be a secret.
impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {expected}, found {}", kind(unexpected)))
    }

    fn invalid_value(_unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(one_of(expected))
    }

    fn missing_field(field: &'static str) -> Self {
        let help = format!("add {field} to the block");
        Self { help: Some(help), ..Self::new(format!("{field} is required")) }
    }
}

fn kind(unexpected: Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Str(_) | Unexpected::Char(_) | Unexpected::Bytes(_) => "a string",
        Unexpected::Seq => "a list",
        Unexpected::Map | Unexpected::StructVariant => "a block",
        Unexpected::Unit | Unexpected::Option => "nothing",
        _ => "something else",
    }
}
