//! Messages from bodies of blocks, and from objects.

use std::collections::{BTreeMap, HashMap};

use hcl_edit::{
    Span as _,
    structure::{Attribute, Block, Body, Structure},
};
use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Proto,
};

use super::{
    scalar::{expect_object, expect_tuple, is_attribute, scalar, well_known},
    source::{DataTypes, Source},
    value::{Value, evaluate},
};
use crate::file::FileError;

const ANY: &str = "google.protobuf.Any";

/// A span of bytes.
type Bytes = std::ops::Range<usize>;

/// Decodes what was parsed into messages.
pub(super) struct Decoder<'a> {
    pub(super) source: Source<'a>,
    pub(super) types: DataTypes<'a>,
}

/// The place of a value: the attribute that it is in, and the way from there.
#[derive(Clone)]
struct At {
    bytes: Bytes,
    path: String,
}

impl At {
    fn within(&self, step: &str) -> Self {
        Self { bytes: self.bytes.clone(), path: format!("{}{step}", self.path) }
    }
}

/// A message that is being filled.
struct Filling {
    message: DynamicMessage,
    /// By the name of a oneof, the field of it that was set.
    chosen: BTreeMap<String, String>,
}

/// Returns the name of a field in HCL.
fn hcl_name(field: &FieldDescriptor) -> String {
    let name = field.json_name();
    match name {
        "id" | "tcp" | "udp" | "http" => name.to_uppercase(),
        _ => {
            let mut letters = name.chars();
            letters
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

fn field_named(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.fields().find(|field| hcl_name(field) == name)
}

/// The message of a field that may be written as a block.
fn block_message(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let kind = field.kind();
    let message = kind.as_message()?;
    if !field.is_map() {
        return (!is_attribute(message)).then(|| message.clone());
    }
    let value = message.map_entry_value_field().kind();
    value.as_message().filter(|message| !is_attribute(message)).cloned()
}

/// `Any` comes last, because its message follows from other fields.
fn is_any(field: &FieldDescriptor) -> bool {
    field.kind().as_message().is_some_and(|message| message.full_name() == ANY)
}

impl Decoder<'_> {
    fn unmarshal(&self, at: &At, problem: &str) -> FileError {
        let text = format!("Failed to unmarshal argument {}: {problem}", at.path);
        self.source.error(at.bytes.clone(), text)
    }

    /// A message whose fields stand in a body.
    pub(super) fn body(
        &self,
        descriptor: &MessageDescriptor,
        body: &Body,
    ) -> Result<DynamicMessage, FileError> {
        self.body_without(descriptor, body, None)
    }

    fn body_without(
        &self,
        descriptor: &MessageDescriptor,
        body: &Body,
        ignored: Option<&str>,
    ) -> Result<DynamicMessage, FileError> {
        let mut entries = Vec::new();
        for structure in body {
            let name = match structure {
                Structure::Attribute(attribute) => attribute.key.as_str(),
                Structure::Block(block) => block.ident.as_str(),
            };
            if ignored == Some(name) {
                continue;
            }
            let field = self.expected(descriptor, structure)?;
            entries.push((field, structure));
        }
        // The sort is stable, so everything else keeps its order.
        entries.sort_by_key(|(field, _)| is_any(field));
        let mut filling = Filling::of(descriptor);
        for (field, structure) in entries {
            match structure {
                Structure::Attribute(attribute) => {
                    self.attribute(&mut filling, &field, attribute)?;
                }
                Structure::Block(block) => self.block(&mut filling, &field, block)?,
            }
        }
        Ok(filling.message)
    }

    /// The field that a structure is about.
    fn expected(
        &self,
        descriptor: &MessageDescriptor,
        structure: &Structure,
    ) -> Result<FieldDescriptor, FileError> {
        match structure {
            Structure::Attribute(attribute) => {
                let name = attribute.key.as_str();
                field_named(descriptor, name).ok_or_else(|| {
                    self.source.error(attribute.key.span().unwrap_or_default(), unexpected(name))
                })
            }
            Structure::Block(block) => {
                let name = block.ident.as_str();
                let hint = match field_named(descriptor, name) {
                    Some(field) if block_message(&field).is_some() => return Ok(field),
                    Some(_) => format!(
                        " Did you mean to define argument \"{name}\"? If so, use the equals sign \
                         to assign it a value."
                    ),
                    None => String::new(),
                };
                let text = format!(
                    "Unsupported block type; Blocks of type \"{name}\" are not expected here.{hint}"
                );
                Err(self.source.error(block.ident.span().unwrap_or_default(), text))
            }
        }
    }

    fn attribute(
        &self,
        filling: &mut Filling,
        field: &FieldDescriptor,
        attribute: &Attribute,
    ) -> Result<(), FileError> {
        let name = attribute.key.as_str();
        let key = attribute.key.span().unwrap_or_default();
        let value = evaluate(&attribute.value, self.source)?;
        let bytes = attribute.value.span().unwrap_or_else(|| key.clone());
        let at = At { bytes, path: name.to_owned() };
        if value == Value::Null {
            return Ok(());
        }
        if filling.message.has_field(field) && field.supports_presence() {
            return Err(self.source.error(key, ONE_BLOCK));
        }
        filling.choose(field).map_err(|text| self.source.error(key, text))?;
        self.set(filling, field, value, &at)
    }

    fn block(
        &self,
        filling: &mut Filling,
        field: &FieldDescriptor,
        block: &Block,
    ) -> Result<(), FileError> {
        let name_at = block.ident.span().unwrap_or_default();
        let refuse = |text: &str| Err(self.source.error(name_at.clone(), text));
        let Some(message) = block_message(field) else { return Ok(()) };
        let labels: Vec<_> =
            block.labels.iter().map(hcl_edit::structure::BlockLabel::as_str).collect();
        filling.choose(field).map_err(|text| self.source.error(name_at.clone(), text))?;
        if field.is_map() {
            let [label] = labels.as_slice() else {
                return refuse("protobuf map fields must have 1 HCL block label");
            };
            let value = self.block_value(filling, &message, block)?;
            if let Proto::Map(map) = filling.message.get_field_mut(field)
                && map.insert(MapKey::String((*label).to_owned()), value).is_some()
            {
                return refuse(&format!("the key \"{label}\" was set already"));
            }
        } else if field.is_list() {
            if !labels.is_empty() {
                return refuse("repeated protobuf fields must not have HCL block labels");
            }
            let value = self.block_value(filling, &message, block)?;
            if let Proto::List(list) = filling.message.get_field_mut(field) {
                list.push(value);
            }
        } else {
            if !labels.is_empty() {
                let name = block.ident.as_str();
                return refuse(&format!(
                    "Extraneous label for {name}; No labels are expected for {name} blocks."
                ));
            }
            if filling.message.has_field(field) {
                return refuse(ONE_BLOCK);
            }
            let value = self.block_value(filling, &message, block)?;
            filling.message.set_field(field, value);
        }
        Ok(())
    }

    fn block_value(
        &self,
        filling: &Filling,
        message: &MessageDescriptor,
        block: &Block,
    ) -> Result<Proto, FileError> {
        if message.full_name() != ANY {
            return self.body(message, &block.body).map(Proto::Message);
        }
        let name_at = block.ident.span().unwrap_or_default();
        let refuse = |problem: String| self.source.error(name_at.clone(), any_error(&problem));
        let (inner, ignored) = if let Some(inner) = self.types.of_data(&filling.message) {
            (inner.map_err(refuse)?, None)
        } else {
            let named = block.body.get_attribute("Type").map(|a| evaluate(&a.value, self.source));
            (nested(message, named.transpose()?.as_ref()).map_err(refuse)?, Some("Type"))
        };
        let content = self.body_without(&inner, &block.body, ignored)?;
        Ok(any(message, &content))
    }

    /// Sets a field to a value that is not null.
    fn set(
        &self,
        filling: &mut Filling,
        field: &FieldDescriptor,
        value: Value,
        at: &At,
    ) -> Result<(), FileError> {
        let refuse = |problem: String| self.unmarshal(at, &problem);
        let kind = field.kind();
        let value = if let Some(entry) = kind.as_message().filter(|_| field.is_map()) {
            if entry.map_entry_key_field().kind() != Kind::String {
                return Err(refuse("a map can only be written with strings for keys".to_owned()));
            }
            let inner = entry.map_entry_value_field().kind();
            let mut map = HashMap::new();
            for (key, value) in expect_object(value).map_err(refuse)? {
                let at = at.within(&format!("[\"{key}\"]"));
                map.insert(MapKey::String(key), self.single(filling, &inner, value, &at)?);
            }
            Proto::Map(map)
        } else if field.is_list() {
            let items = expect_tuple(value).map_err(refuse)?.into_iter().enumerate();
            let items = items.map(|(index, value)| {
                self.single(filling, &kind, value, &at.within(&format!("[{index}]")))
            });
            Proto::List(items.collect::<Result<_, _>>()?)
        } else {
            self.single(filling, &kind, value, at)?
        };
        filling.message.set_field(field, value);
        Ok(())
    }

    /// Decodes one value, be it a field, an item of a list, or a value of a map.
    fn single(
        &self,
        parent: &Filling,
        kind: &Kind,
        value: Value,
        at: &At,
    ) -> Result<Proto, FileError> {
        let refuse = |problem: String| self.unmarshal(at, &problem);
        let Some(message) = kind.as_message() else {
            return scalar(kind, value).map_err(refuse);
        };
        if is_attribute(message) {
            return well_known(message, value).map_err(refuse);
        }
        let mut members = expect_object(value).map_err(refuse)?;
        if message.full_name() != ANY {
            return self.object(message, members, at).map(Proto::Message);
        }
        let refuse = |problem: String| self.source.error(at.bytes.clone(), any_error(&problem));
        let inner = if let Some(inner) = self.types.of_data(&parent.message) {
            inner.map_err(refuse)?
        } else {
            let named = members.iter().position(|(name, _)| name == "Type");
            let named = named.map(|position| members.remove(position).1);
            nested(message, named.as_ref()).map_err(refuse)?
        };
        Ok(any(message, &self.object(&inner, members, at)?))
    }

    /// A message whose fields are the members of an object.
    fn object(
        &self,
        descriptor: &MessageDescriptor,
        members: Vec<(String, Value)>,
        at: &At,
    ) -> Result<DynamicMessage, FileError> {
        let refuse = |text: String| self.source.error(at.bytes.clone(), text);
        let mut entries = Vec::new();
        for (name, value) in members {
            let field = field_named(descriptor, &name).ok_or_else(|| refuse(unexpected(&name)))?;
            entries.push((field, name, value));
        }
        entries.sort_by_key(|(field, _, _)| is_any(field));
        let mut filling = Filling::of(descriptor);
        for (field, name, value) in entries {
            if value == Value::Null {
                continue;
            }
            filling.choose(&field).map_err(refuse)?;
            self.set(&mut filling, &field, value, &at.within(&format!(".{name}")))?;
        }
        Ok(filling.message)
    }
}

impl Filling {
    fn of(descriptor: &MessageDescriptor) -> Self {
        Self { message: DynamicMessage::new(descriptor.clone()), chosen: BTreeMap::new() }
    }

    /// Notes that a field is about to be set, of which a oneof allows one.
    fn choose(&mut self, field: &FieldDescriptor) -> Result<(), String> {
        let Some(oneof) = field.containing_oneof() else { return Ok(()) };
        let name = hcl_name(field);
        match self.chosen.insert(oneof.name().to_owned(), name.clone()) {
            Some(before) if before != name => Err(format!(
                "Cannot set \"{name}\" because \"{before}\" was previously set. Only one of \
                 \"{before}\" and \"{name}\" may be set."
            )),
            _ => Ok(()),
        }
    }
}

const ONE_BLOCK: &str = "only one HCL block may be specified for a non-repeated protobuf Message";

fn unexpected(name: &str) -> String {
    format!("Unsupported argument; An argument named \"{name}\" is not expected here.")
}

fn any_error(problem: &str) -> String {
    format!("error getting type for Any field: {problem}")
}

/// The message that an `Any` within data names.
fn nested(any: &MessageDescriptor, named: Option<&Value>) -> Result<MessageDescriptor, String> {
    let Some(Value::String(url)) = named else {
        return Err("a nested Any needs Type = \"<full name of its message>\"".to_owned());
    };
    let name = url.rsplit('/').next().unwrap_or_default();
    let found = any.parent_pool().get_message_by_name(name);
    found.ok_or_else(|| format!("unknown message: {name}"))
}

/// Packs a message; the URL is the bare name, as upstream's decoder writes it.
fn any(any: &MessageDescriptor, content: &DynamicMessage) -> Proto {
    let mut message = DynamicMessage::new(any.clone());
    let name = prost_reflect::ReflectMessage::descriptor(content).full_name().to_owned();
    message.set_field_by_number(1, Proto::String(name));
    message.set_field_by_number(2, Proto::Bytes(content.encode_to_vec().into()));
    Proto::Message(message)
}
